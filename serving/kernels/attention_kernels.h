// Attention of one query over its keys and values; included by kernels.cpp for each instruction set.
#pragma once

#include <cmath>

#include "vectors.h"

namespace {

constexpr int kMostChunks = kMostHeadDim / kLanes;

// The vectors of a head. With `Chunks` 0 their number is known at run time only, and the last one
// may be incomplete.
template <int Chunks>
struct HeadLayout {
  const int head_dim;

  INLINE int chunks() const { return Chunks != 0 ? Chunks : (head_dim + kLanes - 1) / kLanes; }

  template <class Element>
  INLINE Floats chunk(const Element* vector, int c) const {
    return Chunks != 0 ? load(vector + c * kLanes) : load_first(vector + c * kLanes, head_dim - c * kLanes);
  }

  INLINE void put(float* vector, int c, Floats value) const {
    if (Chunks != 0) store(vector + c * kLanes, value); else store_first(vector + c * kLanes, value, head_dim - c * kLanes);
  }
};

template <class Element, class Layout>
INLINE Floats dot(const Floats* query, const Element* key, const Layout& layout) {
  Floats even = zeros(), odd = zeros();
  int c = 0;
  for (; c + 1 < layout.chunks(); c += 2) {
    even = fma(query[c], layout.chunk(key, c), even);
    odd = fma(query[c + 1], layout.chunk(key, c + 1), odd);
  }
  if (c < layout.chunks()) even = fma(query[c], layout.chunk(key, c), even);
  return add(even, odd);
}

constexpr int kCacheLine = 64;

// Fetch vectors of the head that follows: memory is what attention waits for. Into the second cache,
// as more lines can be on their way to it at once than to the first: up to 1.4 times as fast.
template <class Element>
INLINE void prefetch(const Element* vectors, int count, int head_dim) {
  constexpr int kSecondCache = 2;
  if (vectors == nullptr) return;
  const char* const start = reinterpret_cast<const char*>(vectors);
  for (size_t at = 0; at < count * head_dim * sizeof(Element); at += kCacheLine) {
    __builtin_prefetch(start + at, 0, kSecondCache);
  }
}

// Return where a vector of the following head is; null if none follows.
template <class Element>
INLINE const Element* following(const Element* vectors, int64_t offset) {
  return vectors == nullptr ? nullptr : vectors + offset;
}

INLINE float largest_of(const float* scores, int length) {
  Floats largest = all(-INFINITY);
  for (int j = 0; j < length; j += kLanes) {
    largest = max(largest, keep_first(load(scores + j), length - j, -INFINITY));
  }
  return max_of(largest);
}

// Apply the cap and the bias.
template <class Element>
void change_scores(const AttentionHead<Element>& head) {
  for (int j = 0; j < head.length; j += kLanes) {
    Floats scores = load(head.scores + j);
    if (head.cap != 0) scores = mul(hyperbolic_tangent(div(scores, all(head.cap))), all(head.cap));
    if (head.bias != nullptr) scores = add(scores, load_first(head.bias + j, head.length - j));
    store(head.scores + j, scores);
  }
}

// Write the scores of all keys, and return the largest.
template <class Element, class Layout>
INLINE float score(const Floats* query, const AttentionHead<Element>& head, const Layout& layout) {
  const int head_dim = layout.head_dim, length = head.length;
  const Element* keys = head.keys;
  float* const scores = head.scores;
  int j = 0;
  for (; j + 4 <= length; j += 4, keys += 4 * head_dim) {
    prefetch(following(head.next_keys, j * head_dim), 4, head_dim);
    _mm_storeu_ps(scores + j, sums_of(dot(query, keys, layout), dot(query, keys + head_dim, layout),
                                      dot(query, keys + 2 * head_dim, layout), dot(query, keys + 3 * head_dim, layout)));
  }
  for (; j < length; j++, keys += head_dim) {
    scores[j] = _mm_cvtss_f32(sums_of(dot(query, keys, layout), zeros(), zeros(), zeros()));
  }
  if (head.cap != 0 || head.bias != nullptr) change_scores(head);
  return largest_of(scores, length);
}

// Replace scores by e**(score - largest), and return their sum.
INLINE float exponentials(float* scores, int length, float largest) {
  Floats total = zeros();
  for (int j = 0; j < length; j += kLanes) {
    const Floats each = keep_first(exponential(sub(load(scores + j), all(largest))), length - j, 0);
    store(scores + j, each);
    total = add(total, each);
  }
  return sum_of(total);
}

// Sum the values by their weights.
template <class Element, class Layout>
INLINE void mix(const float* weights, const Element* values, const Element* next_values, int length, const Layout& layout,
                Floats* mixed) {
  const int head_dim = layout.head_dim, chunks = layout.chunks();
  Floats even[kMostChunks], odd[kMostChunks];
  for (int c = 0; c < chunks; c++) even[c] = odd[c] = zeros();
  int j = 0;
  for (; j + 2 <= length; j += 2, values += 2 * head_dim) {
    prefetch(following(next_values, j * head_dim), 2, head_dim);
    const Floats first = all(weights[j]), second = all(weights[j + 1]);
    for (int c = 0; c < chunks; c++) even[c] = fma(first, layout.chunk(values, c), even[c]);
    for (int c = 0; c < chunks; c++) odd[c] = fma(second, layout.chunk(values + head_dim, c), odd[c]);
  }
  if (j < length) {
    for (int c = 0; c < chunks; c++) even[c] = fma(all(weights[j]), layout.chunk(values, c), even[c]);
  }
  for (int c = 0; c < chunks; c++) mixed[c] = add(even[c], odd[c]);
}

template <int Chunks, class Element>
void attend_with(const AttentionHead<Element>& head, int head_dim) {
  const HeadLayout<Chunks> layout{head_dim};
  Floats query[kMostChunks], mixed[kMostChunks];
  for (int c = 0; c < layout.chunks(); c++) {
    query[c] = mul(all(head.scale), layout.chunk(head.query, c));
    if (head.key_step != nullptr) query[c] = mul(query[c], layout.chunk(head.key_step, c));
  }
  const float largest = score(query, head, layout);
  const float total = exponentials(head.scores, head.length, largest);
  mix(head.scores, head.values, head.next_values, head.length, layout, mixed);
  const Floats share = all(head.length > 0 ? 1 / total : 0);  // nothing to attend to: zeros
  if (head.weights != nullptr) {
    for (int j = 0; j < head.length; j += kLanes) {
      store_first(head.weights + j, mul(share, load(head.scores + j)), head.length - j);
    }
  }
  for (int c = 0; c < layout.chunks(); c++) {
    mixed[c] = mul(share, mixed[c]);
    if (head.value_step != nullptr) mixed[c] = mul(mixed[c], layout.chunk(head.value_step, c));
    layout.put(head.out, c, mixed[c]);
  }
}

template <class Element>
void attend(const AttentionHead<Element>& head, int head_dim) {
  switch (head_dim % kLanes == 0 ? head_dim / kLanes : 0) {  // the usual sizes keep the query in registers
    case 2: return attend_with<2>(head, head_dim);
    case 4: return attend_with<4>(head, head_dim);
    case 8: return attend_with<8>(head, head_dim);
    default: return attend_with<0>(head, head_dim);
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
