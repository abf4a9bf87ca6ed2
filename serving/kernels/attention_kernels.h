// Attention of a few queries over the same keys and values; included by kernels.cpp for each instruction set.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

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
INLINE const Element* next_vectors(const Element* vectors, int64_t offset) {
  return vectors == nullptr ? nullptr : vectors + offset;
}

INLINE float max_score(const float* scores, int length) {
  Floats largest = all(-INFINITY);
  for (int j = 0; j < length; j += kLanes) {
    largest = max(largest, keep_first(load(scores + j), length - j, -INFINITY));
  }
  return max_of(largest);
}

// Apply the cap and the bias.
INLINE void apply_cap_and_bias(float* scores, int length, float cap, const float* bias) {
  for (int j = 0; j < length; j += kLanes) {
    Floats capped = load(scores + j);
    if (cap != 0) capped = mul(hyperbolic_tangent(div(capped, all(cap))), all(cap));
    if (bias != nullptr) capped = add(capped, load_first(bias + j, length - j));
    store(scores + j, capped);
  }
}

// Write the scores of all keys for all queries. A key is used by all of them while it is in the cache.
template <int Queries, class Element, class Layout>
INLINE void score(const Floats (&queries)[Queries][kMostChunks], const AttentionHead<Element>& head, const Layout& layout) {
  const int head_dim = layout.head_dim, length = head.length;
  const Element* keys = head.keys;
  int j = 0;
  for (; j + 4 <= length; j += 4, keys += 4 * head_dim) {
    prefetch(next_vectors(head.next_keys, j * head_dim), 4, head_dim);
    for (int q = 0; q < Queries; q++) {
      const Floats* const query = queries[q];
      store_four(head.scores + q * head.scores_stride + j,
                 sums_of(dot(query, keys, layout), dot(query, keys + head_dim, layout),
                         dot(query, keys + 2 * head_dim, layout), dot(query, keys + 3 * head_dim, layout)));
    }
  }
  for (; j < length; j++, keys += head_dim) {
    for (int q = 0; q < Queries; q++) {
      const Floats sum = dot(queries[q], keys, layout);
      head.scores[q * head.scores_stride + j] = first_of(sums_of(sum, zeros(), zeros(), zeros()));
    }
  }
}

// Replace scores by e**(score - largest), and return their sum. What a bias masks becomes exactly 0.
INLINE float exponentiate(float* scores, int length, float largest) {
  Floats total = zeros();
  for (int j = 0; j < length; j += kLanes) {
    const Floats below = sub(load(scores + j), all(largest));
    const Floats numerator = keep_first(zero_where_less(exponential(below), below, all(-87)), length - j, 0);
    store(scores + j, numerator);
    total = add(total, numerator);
  }
  return sum_of(total);
}

// Sum the values by the weights of each query.
template <int Queries, class Element, class Layout>
INLINE void multiply_pv(const AttentionHead<Element>& head, const Layout& layout, Floats (&pv)[Queries][kMostChunks]) {
  const int head_dim = layout.head_dim, chunks = layout.chunks(), length = head.length;
  const Element* values = head.values;
  const float* const weights = head.scores;
  const int64_t stride = head.scores_stride;
  Floats even[Queries][kMostChunks], odd[Queries][kMostChunks];
  for (int q = 0; q < Queries; q++) {
    for (int c = 0; c < chunks; c++) even[q][c] = odd[q][c] = zeros();
  }
  int j = 0;
  for (; j + 2 <= length; j += 2, values += 2 * head_dim) {
    prefetch(next_vectors(head.next_values, j * head_dim), 2, head_dim);
    for (int q = 0; q < Queries; q++) {
      const Floats first = all(weights[q * stride + j]), second = all(weights[q * stride + j + 1]);
      for (int c = 0; c < chunks; c++) even[q][c] = fma(first, layout.chunk(values, c), even[q][c]);
      for (int c = 0; c < chunks; c++) odd[q][c] = fma(second, layout.chunk(values + head_dim, c), odd[q][c]);
    }
  }
  for (int q = 0; q < Queries; q++) {
    if (j < length) {
      const Floats last = all(weights[q * stride + j]);
      for (int c = 0; c < chunks; c++) even[q][c] = fma(last, layout.chunk(values, c), even[q][c]);
    }
    for (int c = 0; c < chunks; c++) pv[q][c] = add(even[q][c], odd[q][c]);
  }
}

// Write the weights: exponentials divided by their sum.
template <class Element>
INLINE void write_softmax(const AttentionHead<Element>& head, float total) {
  for (int j = 0; j < head.length; j += kLanes) {
    store_first(head.out + j, div(load(head.scores + j), all(total)), head.length - j);
  }
}

template <int Queries, int Chunks, class Element>
void attend_with(const AttentionHead<Element>& head, int head_dim) {
  const HeadLayout<Chunks> layout{head_dim};
  Floats queries[Queries][kMostChunks], pv[Queries][kMostChunks];
  float totals[Queries];
  for (int q = 0; q < Queries; q++) {
    for (int c = 0; c < layout.chunks(); c++) {
      queries[q][c] = mul(all(head.scale), layout.chunk(head.query + q * head_dim, c));
      if (head.key_scale != nullptr) queries[q][c] = mul(queries[q][c], layout.chunk(head.key_scale, c));
    }
  }
  score<Queries>(queries, head, layout);
  for (int q = 0; q < Queries; q++) {
    float* const scores = head.scores + q * head.scores_stride;
    const float* const bias = head.bias == nullptr ? nullptr : head.bias + q * head.bias_stride;
    if (head.cap != 0 || bias != nullptr) apply_cap_and_bias(scores, head.length, head.cap, bias);
    float largest = max_score(scores, head.length);
    if (head.sinks != nullptr) largest = std::max(largest, head.sinks[q]);
    totals[q] = exponentiate(scores, head.length, largest);
    if (head.sinks != nullptr) totals[q] += std::exp(head.sinks[q] - largest);
  }
  if (head.values == nullptr) return write_softmax(head, totals[0]);
  multiply_pv<Queries>(head, layout, pv);
  for (int q = 0; q < Queries; q++) {
    const Floats share = all(head.length > 0 ? 1 / totals[q] : 0);  // nothing to attend to: zeros
    for (int c = 0; c < layout.chunks(); c++) {
      Floats value = mul(share, pv[q][c]);
      if (head.value_scale != nullptr) value = mul(value, layout.chunk(head.value_scale, c));
      layout.put(head.out + q * head_dim, c, value);
    }
  }
}

template <int Queries, class Element>
void attend_by(const AttentionHead<Element>& head, int head_dim) {
  switch (head_dim % kLanes == 0 ? head_dim / kLanes : 0) {  // the usual sizes keep the query in registers
    case 2: return attend_with<Queries, 2>(head, head_dim);
    case 4: return attend_with<Queries, 4>(head, head_dim);
    case 8: return attend_with<Queries, 8>(head, head_dim);
    default: return attend_with<Queries, 0>(head, head_dim);
  }
}

template <class Element>
void attend(const AttentionHead<Element>& head, int head_dim) {
  if constexpr (std::is_same_v<Element, float>) {
    switch (head.queries) {
      case 2: return attend_by<2>(head, head_dim);
      case 3: return attend_by<3>(head, head_dim);
      case 4: return attend_by<4>(head, head_dim);
    }
  }
  attend_by<1>(head, head_dim);
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
