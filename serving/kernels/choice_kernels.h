// The best scores of a row, in one pass; included by kernels.cpp for each instruction set.
#pragma once

#include <cmath>

#include "vectors.h"

namespace {

constexpr int kScoresAtOnce = 4096;  // their exponentials are summed while they are in the cache
constexpr int kUnrolled = 4;         // vectors that are compared with the least of the best together

// The greatest scores so far, greatest first; of equals the one found first.
struct BestScores {
  const int number;
  float* const scores;
  int64_t* const columns;
  int filled = 0;

  INLINE float least() const { return scores[number - 1]; }

  void insert(float score, int column) {
    int place = filled < number ? filled++ : number - 1;
    for (; place > 0 && score > scores[place - 1]; place--) {
      scores[place] = scores[place - 1];
      columns[place] = columns[place - 1];
    }
    scores[place] = score;
    columns[place] = column;
  }
};

// Load scores; what lies beyond the end and NaN rank last.
INLINE Floats rankable(const float* scores, int left) {
  return max(keep_first(load_first(scores, left), left, -INFINITY), all(-INFINITY));
}

INLINE void insert_greater(BestScores& best, Floats scores, const float* row, int column) {
  for (uint32_t lanes = greater_lanes(scores, all(best.least())); lanes != 0; lanes &= lanes - 1) {
    const int index = column + __builtin_ctz(lanes);
    if (row[index] > best.least()) best.insert(row[index], index);
  }
}

INLINE void search(BestScores& best, const float* row, int first, int last) {
  for (int column = first; column < last; column += kUnrolled * kLanes) {
    Floats scores[kUnrolled];
    for (int i = 0; i < kUnrolled; i++) {
      const int index = column + i * kLanes;  // a pointer beyond the row is never read
      scores[i] = index < last ? rankable(row + index, last - index) : all(-INFINITY);
    }
    const Floats largest = max(max(scores[0], scores[1]), max(scores[2], scores[3]));
    if (__builtin_expect(greater_lanes(largest, all(best.least())) == 0, 1)) continue;
    for (int i = 0; i < kUnrolled; i++) insert_greater(best, scores[i], row, column + i * kLanes);
  }
}

// Return the sum of e**(score - largest). NaN and infinity make it NaN.
INLINE float sum_of_exponentials(const float* scores, int number, float largest) {
  Floats even = zeros(), odd = zeros();
  const auto exponential_at = [&](int i) {
    const Floats x = sub(load_first(scores + i, number - i), all(largest));
    return keep_first(exponential(x), number - i, 0);
  };
  int i = 0;
  for (; i + kLanes < number; i += 2 * kLanes) {
    even = add(even, exponential_at(i));
    odd = add(odd, exponential_at(i + kLanes));
  }
  if (i < number) even = add(even, exponential_at(i));
  return sum_of(add(even, odd));
}

void choose(const float* scores, int columns, int number, float* best_scores, int64_t* best_columns, float* total_out) {
  BestScores best{number, best_scores, best_columns};
  for (int column = 0; column < number; column++) {
    const float score = scores[column];
    best.insert(score == score ? score : -INFINITY, column);
  }
  float largest = -INFINITY, total = 0;
  for (int first = 0; first < columns; first += kScoresAtOnce) {
    const int last = columns - first < kScoresAtOnce ? columns : first + kScoresAtOnce;
    search(best, scores, first < number ? number : first, last);
    if (total_out == nullptr) continue;
    const float before = largest;
    largest = best_scores[0];
    if (largest == -INFINITY && last < columns) continue;  // nothing but bans so far
    if (total != 0) total *= max_of(exponential(all(before - largest)));
    total += sum_of_exponentials(scores + first, last - first, largest);
  }
  if (total_out != nullptr) *total_out = total;
}

}  // namespace
