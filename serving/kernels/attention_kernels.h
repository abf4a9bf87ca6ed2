// Attention of queries over the keys and values of one head; included by kernels.cpp for each instruction set.
//
// Keys are taken in blocks of kKeyBlock. A block gives each query its largest score, the sum of its exponentials
// and the sum of the values by them; blocks are merged in their order (Milakov and Gimelshein 2018, "Online
// normalizer calculation for softmax"). Few queries are multiplied with lanes along the head, many with a query in
// each lane. All sums have the same order either way, which depends on the positions of keys only: a query has the
// same bits whichever queries are beside it.
#pragma once

#include <cmath>
#include <type_traits>

#include "vectors.h"

namespace {

constexpr float kLowest = -3.4028235e38f;  // finite, so that its difference from itself is 0
constexpr int kCacheLine = 64;

INLINE int smaller(int a, int b) { return a < b ? a : b; }
INLINE int larger(int a, int b) { return a > b ? a : b; }

// The numbers of a head in whole vectors.
INLINE int padded(int head_dim) { return (head_dim + kMostLanes - 1) / kMostLanes * kMostLanes; }

// Return e**x for x <= 0, exactly 0 below -87: of what a bias or a range of keys masks nothing is left.
INLINE Floats exponential_or_zero(Floats x) { return zero_where_less(exponential(x), x, all(-87)); }

INLINE float max_score(const float* scores, int length) {
  Floats largest = all(kLowest);
  for (int j = 0; j < length; j += kLanes) {
    largest = max(largest, keep_first(load(scores + j), length - j, kLowest));
  }
  return max_of(largest);
}

// Replace scores by e**(score - largest), up to a whole vector by zeros, and return their sum.
INLINE float exponentiate(float* scores, int length, float largest) {
  Floats total = zeros();
  for (int j = 0; j < length; j += kLanes) {
    const Floats below = sub(load(scores + j), all(largest));
    const Floats numerator = keep_first(exponential_or_zero(below), length - j, 0);
    store(scores + j, numerator);
    total = add(total, numerator);
  }
  return sum_of(total);
}

INLINE Floats apply_cap(Floats scores, float cap) {
  return cap == 0 ? scores : mul(hyperbolic_tangent(div(scores, all(cap))), all(cap));
}

// The keys of a block that a query attends to, counted from the block's first.
struct KeyRange {
  int first, end;

  INLINE KeyRange(int first, int end) : first(first), end(end) {}
  INLINE KeyRange(const AttentionQuery& query, int block)
      : first(larger(query.first - block * kKeyBlock, 0)), end(smaller(query.end - block * kKeyBlock, kKeyBlock)) {}
  INLINE bool is_empty() const { return first >= end; }
  INLINE void include(KeyRange other) {
    if (other.is_empty()) return;
    if (is_empty()) *this = other;
    else first = smaller(first, other.first), end = larger(end, other.end);
  }
};

// At most kLanes queries that are computed together.
struct QueryGroup {
  const AttentionQuery* queries;
  int number;
  float* scaled;      // [queries, padded head_dim], times the scale of scores
  float* transposed;  // [head_dim, kLanes]; null where lanes lie along the head

  INLINE KeyRange keys(int block) const {
    KeyRange range(queries[0], block);
    for (int q = 1; q < number; q++) range.include(KeyRange(queries[q], block));
    return range;
  }
};

// What some blocks of keys give the queries of a group.
struct GroupState {
  float* const maxima;  // [kLanes], of scores
  float* const totals;  // [kLanes], sums of e**(score - maximum)
  float* const values;  // [queries, padded head_dim], sums of values by e**(score - maximum)

  INLINE explicit GroupState(float* state) : maxima(state), totals(state + kLanes), values(state + 2 * kLanes) {}
  INLINE static int64_t floats(int head_dim) { return int64_t(kLanes) * (2 + padded(head_dim)); }

  // Start with the sinks, which are like keys without values.
  INLINE void start(const QueryGroup& group, int head_dim) const {
    for (int q = 0; q < kLanes; q++) {
      const float* const sink = q < group.number ? group.queries[q].sink : nullptr;
      maxima[q] = sink ? *sink : kLowest, totals[q] = sink ? 1 : 0;
    }
    std::memset(values, 0, sizeof(float) * group.number * padded(head_dim));
  }
};

// The keys and values of the block that is computed next; null if there is none.
template <class Element>
struct Following {
  const Element *keys = nullptr, *values = nullptr;

  INLINE void prefetch_keys(int first, int number, int head_dim) const { prefetch(keys, first, number, head_dim); }
  INLINE void prefetch_value(int index, int head_dim) const { prefetch(values, index, 1, head_dim); }

 private:
  // Memory is what attention waits for. Into the second cache, as more lines can be on their way to it at once than
  // to the first: up to 1.4 times as fast.
  INLINE static void prefetch(const Element* vectors, int first, int number, int head_dim) {
    constexpr int kSecondCache = 2;
    if (vectors == nullptr) return;
    const auto* const start = reinterpret_cast<const char*>(vectors + int64_t(first) * head_dim);
    for (size_t at = 0; at < number * head_dim * sizeof(Element); at += kCacheLine) {
      __builtin_prefetch(start + at, 0, kSecondCache);
    }
  }
};

// Write the dot products of `Queries` queries with four keys at `scores`.
template <int Queries, class Element>
INLINE void score_four_keys(const float* queries, const Element* keys, int head_dim, float* scores, int64_t stride) {
  const int dim = padded(head_dim), whole = head_dim / kLanes * kLanes;
  Floats sums[Queries][4];
  for (int q = 0; q < Queries; q++) {
    for (int k = 0; k < 4; k++) sums[q][k] = zeros();
  }
  const auto add_products = [&](int d, auto load_chunk) __attribute__((always_inline)) {
    Floats chunks_of_queries[Queries];
    for (int q = 0; q < Queries; q++) chunks_of_queries[q] = load(queries + q * dim + d);
    for (int k = 0; k < 4; k++) {
      const Floats chunk = load_chunk(keys + k * head_dim + d);
      for (int q = 0; q < Queries; q++) sums[q][k] = fma(chunks_of_queries[q], chunk, sums[q][k]);
    }
  };
  for (int d = 0; d < whole; d += kLanes) {
    add_products(d, [](const Element* chunk) __attribute__((always_inline)) { return load(chunk); });
  }
  if (whole < head_dim) {
    const int left = head_dim - whole;
    add_products(whole, [left](const Element* chunk) __attribute__((always_inline)) { return load_first(chunk, left); });
  }
  for (int q = 0; q < Queries; q++) {
    store_four(scores + q * stride, sums_of(sums[q][0], sums[q][1], sums[q][2], sums[q][3]));
  }
}

// Write the dot products of `number` queries with each key of a range, to the bit those of score_four_keys.
template <class Element>
NOINLINE void score_few_keys(const float* queries, int number, const Element* keys, KeyRange range, int head_dim,
                             float* scores, int64_t stride) {
  for (int j = range.first; j < range.end; j++) {
    const Element* const key = keys + int64_t(j) * head_dim;
    for (int q = 0; q < number; q++) {
      const float* const query = queries + q * padded(head_dim);
      Floats sum = zeros();
      int d = 0;
      for (; d + kLanes <= head_dim; d += kLanes) sum = fma(load(query + d), load(key + d), sum);
      if (d < head_dim) sum = fma(load(query + d), load_first(key + d, head_dim - d), sum);
      float four[4];
      store_four(four, sums_of(sum, zeros(), zeros(), zeros()));
      scores[q * stride + j] = four[0];
    }
  }
}

// Write the scores [queries, stride] of a range of keys.
template <int Queries, class Element>
INLINE void score_keys(const float* queries, const Element* keys, KeyRange range, int head_dim, float* scores, int64_t stride,
                       const Following<Element>& next) {
  if (range.end - range.first < 4) return score_few_keys(queries, Queries, keys, range, head_dim, scores, stride);
  for (int j = range.first; j < range.end; j += 4) {
    next.prefetch_keys(j - range.first, 4, head_dim);
    const int key = smaller(j, range.end - 4);  // of the last four, some once more
    score_four_keys<Queries>(queries, keys + int64_t(key) * head_dim, head_dim, scores + key, stride);
  }
}

// Call work<number>() for a number of 1 to 4 that is known at run time only.
template <class Work>
INLINE void call_with_number(int number, const Work& work) {
  switch (number) {
    case 1: return work(std::integral_constant<int, 1>());
    case 2: return work(std::integral_constant<int, 2>());
    case 3: return work(std::integral_constant<int, 3>());
    default: return work(std::integral_constant<int, 4>());
  }
}

// The weights of a block, in rows of queries or of keys.
struct Weights {
  const float* data;
  int64_t query_stride, key_stride;
};

// Add the values of a range of keys by their weights to some columns of the sums of `Queries` queries. A query's
// sums go over one key after the other.
template <bool kIsWhole, int Queries, int Chunks, class Element>
INLINE void add_columns(Weights weights, const Element* values, KeyRange range, int head_dim, int column,
                        const Following<Element>& next, Floats (&columns)[Queries][Chunks]) {
  const Element* value = values + int64_t(range.first) * head_dim + column;
  const float* weight = weights.data + range.first * weights.key_stride;
  for (int j = range.first; j < range.end; j++, value += head_dim, weight += weights.key_stride) {
    next.prefetch_value(j - range.first, head_dim);
    Floats factors[Queries];
    for (int q = 0; q < Queries; q++) factors[q] = all(weight[q * weights.query_stride]);
    for (int c = 0; c < Chunks; c++) {
      const Floats chunk = kIsWhole ? load(value + c * kLanes) : load_first(value, head_dim - column);
      for (int q = 0; q < Queries; q++) columns[q][c] = fma(factors[q], chunk, columns[q][c]);
    }
  }
}

// Call work<chunks, are whole>(column) for all columns of a head, in as many chunks at once as registers hold sums of
// `Queries` queries, and enough to hide an addition's latency.
template <int Queries, class Work>
INLINE void for_columns(int head_dim, const Work& work) {
  constexpr int kColumns = Queries == 1 ? 8 : Queries == 4 && kLanes == 8 ? 2 : 4;
  constexpr std::integral_constant<int, kColumns> most;
  constexpr std::integral_constant<int, 4> four;
  constexpr std::integral_constant<int, 1> one;
  int column = 0;
  for (; column + kColumns * kLanes <= head_dim; column += kColumns * kLanes) work(most, std::true_type(), column);
  if (kColumns == 8 && column + 4 * kLanes <= head_dim) {
    work(four, std::true_type(), column);
    column += 4 * kLanes;
  }
  for (; column + kLanes <= head_dim; column += kLanes) work(one, std::true_type(), column);
  if (column < head_dim) work(one, std::false_type(), column);
}

template <int Queries, class Element>
INLINE void add_values(Weights weights, const Element* values, KeyRange range, int head_dim, Following<Element> next,
                       float* sums) {
  if (range.is_empty()) return;
  const int dim = padded(head_dim);
  for_columns<Queries>(head_dim, [&](auto chunks, auto is_whole, int column) __attribute__((always_inline)) {
    constexpr int kChunks = decltype(chunks)::value;
    Floats columns[Queries][kChunks];
    for (int q = 0; q < Queries; q++) {
      for (int c = 0; c < kChunks; c++) columns[q][c] = load(sums + q * dim + column + c * kLanes);
    }
    add_columns<decltype(is_whole)::value>(weights, values, range, head_dim, column, next, columns);
    for (int q = 0; q < Queries; q++) {
      for (int c = 0; c < kChunks; c++) store(sums + q * dim + column + c * kLanes, columns[q][c]);
    }
    next = {};
  });
}

// Add the values of a range of keys for each query by itself, those that it attends to.
template <class Element>
NOINLINE void add_values_of_each(const AttentionQuery* queries, int number, int block, Weights weights, const Element* values,
                                 KeyRange keys, int head_dim, float* sums) {
  for (int q = 0; q < number; q++) {
    KeyRange range(queries[q], block);
    range.first = larger(range.first, keys.first), range.end = smaller(range.end, keys.end);
    add_values<1>({weights.data + q * weights.query_stride, 0, weights.key_stride}, values, range, head_dim,
                  Following<Element>{}, sums + q * padded(head_dim));
  }
}

// Sum the values of a block for up to four queries. Values of keys that a query does not attend to are not read for
// it: they may be no numbers.
template <class Element>
NOINLINE void multiply_values(const AttentionQuery* queries, int number, int block, Weights weights, const Element* values,
                              int head_dim, const Following<Element>& next, float* sums) {
  KeyRange common(queries[0], block);
  for (int q = 1; q < number; q++) {
    const KeyRange range(queries[q], block);
    common.first = larger(common.first, range.first), common.end = smaller(common.end, range.end);
  }
  const auto add_for_each = [&](KeyRange keys) {
    add_values_of_each(queries, number, block, weights, values, keys, head_dim, sums);
  };
  if (common.is_empty()) return add_for_each({0, kKeyBlock});
  if (number > 1) add_for_each({0, common.first});
  call_with_number(number, [&](auto queries_of_tile) __attribute__((always_inline)) {
    add_values<decltype(queries_of_tile)::value>(weights, values, common, head_dim, next, sums);
  });
  if (number > 1) add_for_each({common.end, kKeyBlock});
}

// A query's largest score in a block, and the sum of e**(score - largest).
struct Normalizer {
  float largest, total;
};

// Replace a query's scores in a block by their exponentials, up to its last key; those before its first become 0.
INLINE Normalizer exponentiate_row(const AttentionQuery& query, int block, float cap, float* row) {
  const KeyRange range(query, block);
  if (range.is_empty()) return {kLowest, 0};
  if (cap != 0 || query.bias != nullptr) {
    const float* const bias = query.bias == nullptr ? nullptr : query.bias + block * kKeyBlock;
    for (int j = range.first; j < range.end; j += kLanes) {
      Floats capped = apply_cap(load_first(row + j, range.end - j), cap);
      if (bias != nullptr) capped = add(capped, load_first(bias + j, range.end - j));
      store_first(row + j, capped, range.end - j);
    }
  }
  for (int j = 0; j < range.first; j++) row[j] = -INFINITY;
  const float largest = max_score(row, range.end);
  return {largest, exponentiate(row, range.end, largest)};
}

// The queries from which on each is put in a lane. Where they share the keys of one block, tiles of them that merge
// nothing are faster below 64 keys: 1.1 to 1.6 times from 16 to 48 keys of 64 numbers.
constexpr int kFewestByLanes = kLanes / 2 + 1, kFewestKeysByLanes = 64;
constexpr int kQueryTile = kLanes == 16 ? 4 : 3;  // queries whose sums for four keys fit the registers

// Compute the state of a block with lanes along the head.
template <class Element>
NOINLINE void attend_along_head(const QueryGroup& group, const AttentionHead<Element>& head, int block, int head_dim,
                                const Following<Element>& next, float* scores, const GroupState& state) {
  const int64_t offset = int64_t(block) * kKeyBlock * head_dim;
  const int dim = padded(head_dim);
  for (int first = 0; first < group.number; first += kQueryTile) {
    const AttentionQuery* const queries = group.queries + first;
    const int number = smaller(kQueryTile, group.number - first);
    KeyRange keys(queries[0], block);
    for (int q = 1; q < number; q++) keys.include(KeyRange(queries[q], block));
    const Following<Element> next_of_tile = first == 0 ? next : Following<Element>{};
    call_with_number(number, [&](auto queries_of_tile) __attribute__((always_inline)) {
      score_keys<decltype(queries_of_tile)::value>(group.scaled + first * dim, head.keys + offset, keys, head_dim, scores,
                                                   kKeyBlock, next_of_tile);
    });
    for (int q = 0; q < number; q++) {
      const auto [largest, total] = exponentiate_row(queries[q], block, head.cap, scores + q * kKeyBlock);
      state.maxima[first + q] = largest, state.totals[first + q] = total;
    }
    multiply_values(queries, number, block, {scores, kKeyBlock, 1}, head.values + offset, head_dim, next_of_tile,
                    state.values + first * dim);
  }
}

template <int Keys>
struct KeySums {
  Floats of[Keys];
};

// Return the lanes' sums of products that one lane of score_four_keys has, a query in each lane here.
template <int Keys, int HeadDim>
INLINE KeySums<Keys> products_of_lane(const float* queries, const float* keys, int head_dim, int lane) {
  KeySums<Keys> sums;
  for (int k = 0; k < Keys; k++) sums.of[k] = zeros();
  const int dim = HeadDim != 0 ? HeadDim : head_dim;
  for (int d = lane; d < dim; d += kLanes) {
    const Floats query = load(queries + d * kLanes);
    for (int k = 0; k < Keys; k++) sums.of[k] = fma(query, all(keys[k * dim + d]), sums.of[k]);
  }
  return sums;
}

// Add up the lanes in the order of sums_of.
template <int Keys, int HeadDim, int Fold>
INLINE KeySums<Keys> products_of_lanes(const float* queries, const float* keys, int head_dim, int lane) {
  if constexpr (Fold == 0) {
    return products_of_lane<Keys, HeadDim>(queries, keys, head_dim, lane);
  } else {
    const auto sums = products_of_lanes<Keys, HeadDim, Fold - 1>(queries, keys, head_dim, lane);
    const auto others = products_of_lanes<Keys, HeadDim, Fold - 1>(queries, keys, head_dim, lane + kFolds[Fold - 1]);
    KeySums<Keys> both;
    for (int k = 0; k < Keys; k++) both.of[k] = add(sums.of[k], others.of[k]);
    return both;
  }
}

template <int Keys, int HeadDim>
INLINE void score_tile(const float* queries, const float* keys, int head_dim, float* scores) {
  const auto sums = products_of_lanes<Keys, HeadDim, kNumFolds>(queries, keys, head_dim, 0);
  for (int k = 0; k < Keys; k++) store(scores + k * kLanes, sums.of[k]);
}

// Write the scores [keys, kLanes] of a range of keys.
template <int HeadDim>
void score_keys_by_lanes(const float* queries, const float* keys, KeyRange range, int head_dim, float* scores) {
  constexpr int kKeys = kLanes == 16 ? 4 : 2;
  const int dim = HeadDim != 0 ? HeadDim : head_dim;
  int j = range.first;
  for (; j + kKeys <= range.end; j += kKeys) {
    score_tile<kKeys, HeadDim>(queries, keys + int64_t(j) * dim, head_dim, scores + j * kLanes);
  }
  for (; j < range.end; j++) score_tile<1, HeadDim>(queries, keys + int64_t(j) * dim, head_dim, scores + j * kLanes);
}

// Add the biases of each lane's query, and mask the keys that it does not attend to.
INLINE void add_bias_and_mask(const QueryGroup& group, KeyRange keys, int block, float* scores) {
  for (int q = 0; q < group.number; q++) {
    const KeyRange range(group.queries[q], block);
    if (const float* const bias = group.queries[q].bias) {
      for (int j = range.first; j < range.end; j++) scores[j * kLanes + q] += bias[block * kKeyBlock + j];
    }
    for (int j = keys.first; j < smaller(range.first, keys.end); j++) scores[j * kLanes + q] = -INFINITY;
    for (int j = larger(range.end, keys.first); j < keys.end; j++) scores[j * kLanes + q] = -INFINITY;
  }
}

// Replace scores [keys, kLanes] by exponentials, as `exponentiate` does.
INLINE void exponentiate_lanes(float* scores, KeyRange keys, const GroupState& state) {
  Floats largest = all(kLowest);
  for (int j = keys.first; j < keys.end; j++) largest = max(largest, load(scores + j * kLanes));
  store(state.maxima, largest);
  for (int j = keys.first; j < keys.end; j++) {
    store(scores + j * kLanes, exponential_or_zero(sub(load(scores + j * kLanes), largest)));
  }
  Floats totals[kLanes];
  for (int lane = 0; lane < kLanes; lane++) totals[lane] = zeros();
  for (int j = keys.first; j < keys.end; j++) totals[j % kLanes] = add(totals[j % kLanes], load(scores + j * kLanes));
  for (int half = kLanes / 2; half > 0; half /= 2) {  // in the order of sum_of
    for (int lane = 0; lane < half; lane++) totals[lane] = add(totals[lane], totals[lane + half]);
  }
  store(state.totals, totals[0]);
}

// Compute the state of a block with a query in each lane. keys, values: of the block.
NOINLINE void attend_by_lanes(const QueryGroup& group, const float* keys, const float* values, float cap, int block,
                              int head_dim, float* scores, const GroupState& state) {
  const KeyRange range = group.keys(block);
  switch (head_dim) {
    case 64: score_keys_by_lanes<64>(group.transposed, keys, range, head_dim, scores); break;
    case 128: score_keys_by_lanes<128>(group.transposed, keys, range, head_dim, scores); break;
    default: score_keys_by_lanes<0>(group.transposed, keys, range, head_dim, scores);
  }
  if (cap != 0) {
    for (int j = range.first; j < range.end; j++) store(scores + j * kLanes, apply_cap(load(scores + j * kLanes), cap));
  }
  add_bias_and_mask(group, range, block, scores);
  exponentiate_lanes(scores, range, state);
  for (int q = 0; q < group.number; q += 4) {
    multiply_values(group.queries + q, smaller(4, group.number - q), block, {scores + q, 1, kLanes}, values,
                    head_dim, Following<float>{}, state.values + q * padded(head_dim));
  }
}

// A block of keys and values in floats, for queries in lanes.
struct FloatBlock {
  const float* keys = nullptr;
  const float* values;
};

template <class Element>
NOINLINE void copy_as_floats(const Element* numbers, int64_t first, int64_t end, float* floats) {
  int64_t i = first;
  for (; i + kLanes <= end; i += kLanes) store(floats + i, load(numbers + i));
  if (i < end) store_first(floats + i, load_first(numbers + i, int(end - i)), int(end - i));
}

// Return a block in floats; of fp16 copies are made.
template <class Element>
INLINE FloatBlock float_block(const AttentionHead<Element>& head, KeyRange keys, int block, int head_dim, float* copies) {
  const int64_t offset = int64_t(block) * kKeyBlock * head_dim;
  if constexpr (std::is_same_v<Element, float>) {
    return {head.keys + offset, head.values + offset};
  } else {
    float* const values = copies + kKeyBlock * head_dim;
    const int64_t first = int64_t(keys.first) * head_dim, end = int64_t(keys.end) * head_dim;
    copy_as_floats(head.keys + offset, first, end, copies);
    copy_as_floats(head.values + offset, first, end, values);
    return {copies, values};
  }
}

// Add the state of a block to that of the blocks before it.
NOINLINE void merge(const QueryGroup& group, int block, const GroupState& of_block, int head_dim, const GroupState& state) {
  const Floats before = load(state.maxima), added = load(of_block.maxima), largest = max(before, added);
  const Floats old_factor = exponential_or_zero(sub(before, largest)), factor = exponential_or_zero(sub(added, largest));
  store(state.maxima, largest);
  store(state.totals, fma(load(of_block.totals), factor, mul(load(state.totals), old_factor)));
  float old_factors[kLanes], factors[kLanes];
  store(old_factors, old_factor);
  store(factors, factor);
  const int dim = padded(head_dim);
  for (int q = 0; q < group.number; q++) {
    if (KeyRange(group.queries[q], block).is_empty()) continue;
    for (int d = q * dim; d < (q + 1) * dim; d += kLanes) {
      store(state.values + d, fma(load(of_block.values + d), all(factors[q]), mul(load(state.values + d), all(old_factors[q]))));
    }
  }
}

// Write a vector of a query's result, from column d on.
INLINE void write_result(const AttentionQuery& query, Floats value, int d, int head_dim) {
  if (query.value_scale != nullptr) value = mul(value, load_first(query.value_scale + d, head_dim - d));
  store_first(query.out + d, value, head_dim - d);
}

// Divide the sums by the totals, and write the results.
NOINLINE void finish(const QueryGroup& group, const GroupState& state, int head_dim) {
  const int dim = padded(head_dim);
  for (int q = 0; q < group.number; q++) {
    const AttentionQuery query = group.queries[q];
    const Floats share = all(query.first < query.end ? 1 / state.totals[q] : 0);  // nothing to attend to: zeros
    for (int d = 0; d < head_dim; d += kLanes) {
      write_result(query, mul(share, load(state.values + q * dim + d)), d, head_dim);
    }
  }
}

INLINE void scale_query(AttentionQuery query, float scale, int head_dim, float* scaled) {
  for (int d = 0; d < padded(head_dim); d += kLanes) {
    Floats values = mul(all(scale), load_first(query.vector + d, larger(head_dim - d, 0)));
    if (query.key_scale != nullptr) values = mul(values, load_first(query.key_scale + d, larger(head_dim - d, 0)));
    store(scaled + d, values);
  }
}

// Return where the block of keys or values that follows is; null if none follows.
template <class Element>
INLINE const Element* following(const Element* vectors, int block, int end_block, const Element* next, int head_dim) {
  if (block + 1 == end_block) return next;
  return vectors + int64_t(block + 1) * kKeyBlock * head_dim;
}

template <class Element>
INLINE Following<Element> following_block(const AttentionHead<Element>& head, int block, int end_block, int head_dim) {
  return {following(head.keys, block, end_block, head.next_keys, head_dim),
          following(head.values, block, end_block, head.next_values, head_dim)};
}

// Attend with a tile of queries to the same keys of one block. As nothing is merged, sums stay in registers; they have
// the bits of those in a state.
template <int Queries, int HeadDim, class Element>
INLINE void attend_tile(const AttentionQuery* queries, const AttentionHead<Element>& head, int block, int dim_of_head,
                        const Following<Element>& next) {
  const int head_dim = HeadDim != 0 ? HeadDim : dim_of_head, dim = padded(head_dim);
  const int64_t offset = int64_t(block) * kKeyBlock * head_dim;
  const KeyRange range(queries[0], block);
  float* const scores = head.scratch;
  // Memory that nothing else points to, so that registers may hold it.
  alignas(kCacheLine) float scaled[Queries * (HeadDim != 0 ? HeadDim : kMostHeadDim)];
  for (int q = 0; q < Queries; q++) scale_query(queries[q], head.scale, head_dim, scaled + q * dim);
  score_keys<Queries>(scaled, head.keys + offset, range, head_dim, scores, kKeyBlock, next);
  Floats shares[Queries];
  for (int q = 0; q < Queries; q++) {
    shares[q] = all(1 / exponentiate_row(queries[q], block, head.cap, scores + q * kKeyBlock).total);
  }
  Following<Element> next_values = next;
  for_columns<Queries>(head_dim, [&](auto chunks, auto is_whole, int column) __attribute__((always_inline)) {
    constexpr int kChunks = decltype(chunks)::value;
    Floats columns[Queries][kChunks];
    for (int q = 0; q < Queries; q++) {
      for (int c = 0; c < kChunks; c++) columns[q][c] = zeros();
    }
    add_columns<decltype(is_whole)::value>(Weights{scores, kKeyBlock, 1}, head.values + offset, range, head_dim, column,
                                           next_values, columns);
    for (int q = 0; q < Queries; q++) {
      const AttentionQuery query = queries[q];
      for (int c = 0; c < kChunks; c++) {
        write_result(query, mul(shares[q], columns[q][c]), column + c * kLanes, head_dim);
      }
    }
    next_values = {};
  });
}

template <int HeadDim, class Element>
void attend_tiles(const AttentionHead<Element>& head, int block, int head_dim) {
  Following<Element> next = following_block(head, block, block + 1, head_dim);
  for (int first = 0; first < head.number; first += kQueryTile) {
    call_with_number(smaller(kQueryTile, head.number - first), [&](auto queries_of_tile) __attribute__((always_inline)) {
      attend_tile<decltype(queries_of_tile)::value, HeadDim>(head.queries + first, head, block, head_dim, next);
    });
    next = {};
  }
}

// Whether all queries attend to the same keys, which are in one block, and to nothing else.
INLINE bool share_one_block(const AttentionQuery* queries, int number) {
  const int first = queries[0].first, end = queries[0].end;
  for (int q = 0; q < number; q++) {
    if (queries[q].first != first || queries[q].end != end || queries[q].sink != nullptr) return false;
  }
  return first < end && first / kKeyBlock == (end - 1) / kKeyBlock;
}

// The queries of a head in groups, and the memory for their states.
template <class Element>
class QueryGroups {
 public:
  QueryGroups(const AttentionHead<Element>& head, int head_dim)
      : number((head.number + kLanes - 1) / kLanes), head_(head), head_dim_(head_dim) {
    KeyRange range(head.queries[0].first, head.queries[0].end);
    for (int q = 1; q < head.number; q++) range.include({head.queries[q].first, head.queries[q].end});
    first_block = range.first / kKeyBlock, end_block = (range.end + kKeyBlock - 1) / kKeyBlock;
    float* memory = head.scratch;
    for (int i = 0; i < number; i++, memory += 2 * kLanes * padded(head_dim)) {
      groups[i].queries = head.queries + i * kLanes;
      groups[i].number = smaller(kLanes, head.number - i * kLanes);
      groups[i].scaled = memory;
      prepare(groups[i]);
    }
    scores_ = memory;
    copies_ = scores_ + kKeyBlock * kMostLanes;
    block_state_ = copies_ + 2 * kKeyBlock * head_dim;
    states_ = block_state_ + GroupState::floats(head_dim);
  }

  // Return the state of a group over all blocks so far, and that of one block.
  INLINE GroupState state(int group) const { return GroupState(states_ + group * GroupState::floats(head_dim_)); }
  INLINE GroupState block_state() const { return GroupState(block_state_); }

  // Return where the state of a block is that is merged later.
  INLINE GroupState block_state(float* block_states, int block, int group) const {
    return GroupState(block_states + (int64_t(block - first_block) * number + group) * GroupState::floats(head_dim_));
  }

  // Compute what a block of keys gives to each group that attends to some of them. work(group, compute) calls
  // compute(state).
  template <class Work>
  INLINE void attend(int block, Following<Element> next, const Work& work) const {
    FloatBlock floats;
    for (int i = 0; i < number; i++) {
      const QueryGroup& group = groups[i];
      if (group.keys(block).is_empty()) continue;
      if (group.transposed != nullptr && floats.keys == nullptr) {
        KeyRange keys = group.keys(block);
        for (int other = i + 1; other < number; other++) keys.include(groups[other].keys(block));
        floats = float_block(head_, keys, block, head_dim_, copies_);
      }
      work(i, [&](const GroupState& state) __attribute__((always_inline)) {
        std::memset(state.values, 0, sizeof(float) * group.number * padded(head_dim_));
        if (group.transposed == nullptr) return attend_along_head(group, head_, block, head_dim_, next, scores_, state);
        attend_by_lanes(group, floats.keys, floats.values, head_.cap, block, head_dim_, scores_, state);
      });
      next = {};
    }
  }

  QueryGroup groups[kMostQueries / kLanes];
  int number, first_block, end_block;

 private:
  // Scale the queries of a group, and put each in a lane if they are many.
  INLINE void prepare(QueryGroup& group) const {
    const int dim = padded(head_dim_);
    for (int q = 0; q < group.number; q++) scale_query(group.queries[q], head_.scale, head_dim_, group.scaled + q * dim);
    group.transposed = nullptr;
    if (group.number < kFewestByLanes) return;
    group.transposed = group.scaled + kLanes * dim;
    for (int d = 0; d < head_dim_; d++) {
      for (int q = 0; q < kLanes; q++) group.transposed[d * kLanes + q] = q < group.number ? group.scaled[q * dim + d] : 0;
    }
  }

  const AttentionHead<Element>& head_;
  int head_dim_;
  float* scores_;       // [kKeyBlock, kLanes], or of four queries [4, kKeyBlock]
  float* copies_;       // of a block's keys and values
  float* block_state_;  // of one group
  float* states_;       // of all groups
};

template <class Element>
void attend(const AttentionHead<Element>& head, int head_dim) {
  if (head.number == 0) return;
  if (share_one_block(head.queries, head.number) &&
      (head.number < kFewestByLanes || head.queries[0].end - head.queries[0].first < kFewestKeysByLanes)) {
    const int block = head.queries[0].first / kKeyBlock;
    return head_dim == 64 ? attend_tiles<64>(head, block, head_dim) : attend_tiles<0>(head, block, head_dim);
  }
  const QueryGroups<Element> all(head, head_dim);
  bool has_started[kMostQueries / kLanes];
  for (int i = 0; i < all.number; i++) {
    has_started[i] = head.queries[0].sink != nullptr;  // all queries have sinks, or none
    if (has_started[i]) all.state(i).start(all.groups[i], head_dim);
  }
  for (int block = all.first_block; block < all.end_block; block++) {
    all.attend(block, following_block(head, block, all.end_block, head_dim), [&](int i, auto compute) {
      compute(has_started[i] ? all.block_state() : all.state(i));
      if (has_started[i]) merge(all.groups[i], block, all.block_state(), head_dim, all.state(i));
      has_started[i] = true;
    });
  }
  for (int i = 0; i < all.number; i++) {
    if (!has_started[i]) all.state(i).start(all.groups[i], head_dim);
    finish(all.groups[i], all.state(i), head_dim);
  }
}

// Write the states of a range of blocks; other threads compute the rest.
template <class Element>
void attend_to_blocks(const AttentionHead<Element>& head, int head_dim, int first_block, int end_block, float* states) {
  const QueryGroups<Element> all(head, head_dim);
  for (int block = first_block; block < end_block; block++) {
    all.attend(block, following_block(head, block, end_block, head_dim),
               [&](int i, auto compute) { compute(all.block_state(states, block, i)); });
  }
}

// Merge the states of all blocks, and write the results.
template <class Element>
void merge_blocks(const AttentionHead<Element>& head, int head_dim, float* states) {
  const QueryGroups<Element> all(head, head_dim);
  for (int i = 0; i < all.number; i++) {
    const QueryGroup& group = all.groups[i];
    all.state(i).start(group, head_dim);
    for (int block = all.first_block; block < all.end_block; block++) {
      if (!group.keys(block).is_empty()) merge(group, block, all.block_state(states, block, i), head_dim, all.state(i));
    }
    finish(group, all.state(i), head_dim);
  }
}

// Write the weights of one query, the head's first, over its keys.
template <class Element>
void write_weights(const AttentionHead<Element>& head, int head_dim, float* scores) {
  const AttentionQuery& query = head.queries[0];
  const int length = query.end;
  scale_query(query, head.scale, head_dim, head.scratch);
  score_keys<1>(head.scratch, head.keys, KeyRange{0, length}, head_dim, scores, 0, Following<Element>{});
  for (int j = 0; head.cap != 0 && j < length; j += kLanes) store(scores + j, apply_cap(load(scores + j), head.cap));
  const Floats total = all(exponentiate(scores, length, max_score(scores, length)));
  for (int j = 0; j < length; j += kLanes) store_first(query.out + j, div(load(scores + j), total), length - j);
}

void round_to_halves(const float* numbers, int64_t count, Half* halves) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int left = int(count - i < kLanes ? count - i : kLanes);
    store_halves(halves + i, load_first(numbers + i, left), left);
  }
}

void rotate(const float* head, const float* cos, const float* sin, int rotary_dim, int head_dim, float* out) {
  const int half = rotary_dim / 2;
  for (int i = 0; i < half; i += kLanes) {
    const int left = half - i;
    const Floats first = load_first(head + i, left), second = load_first(head + half + i, left);
    const Floats c = load_first(cos + i, left), s = load_first(sin + i, left);
    store_first(out + i, sub(mul(first, c), mul(second, s)), left);
    store_first(out + half + i, add(mul(first, s), mul(second, c)), left);
  }
  for (int i = rotary_dim; i < head_dim; i++) out[i] = head[i];
}

}  // namespace
