// Recurrent cells and the attention of recurrent decoders, one row at a time; included by
// kernels.cpp for each instruction set. Sums are rounded as the graphs' nodes round them.
#pragma once

#include "attention_kernels.h"
#include "vectors.h"

namespace {

INLINE Floats sum_at(const float* x, const float* u, int i, int left) {
  return add(load_first(x + i, left), load_first(u + i, left));
}

INLINE Floats interpolate(Floats update, Floats hidden, Floats fresh) {
  return add(fresh, mul(update, sub(hidden, fresh)));
}

void gru_cell(const float* x, const float* u, const float* hidden, int dim, float* next) {
  for (int i = 0; i < dim; i += kLanes) {
    const int left = dim - i, fresh_at = 2 * dim + i;
    const Floats reset = sigmoid(sum_at(x, u, i, left)), update = sigmoid(sum_at(x, u, dim + i, left));
    const Floats recurrent = mul(reset, load_first(u + fresh_at, left));
    const Floats fresh = hyperbolic_tangent(add(load_first(x + fresh_at, left), recurrent));
    store_first(next + i, interpolate(update, load_first(hidden + i, left), fresh), left);
  }
}

void gru_reset(const float* x, const float* u, const float* hidden, int dim, float* reset) {
  for (int i = 0; i < dim; i += kLanes) {
    const int left = dim - i;
    store_first(reset + i, mul(sigmoid(sum_at(x, u, i, left)), load_first(hidden + i, left)), left);
  }
}

void gru_update(const float* x, const float* u, const float* u_new, const float* hidden, int dim, float* next) {
  for (int i = 0; i < dim; i += kLanes) {
    const int left = dim - i;
    const Floats update = sigmoid(sum_at(x, u, dim + i, left));
    const Floats fresh = hyperbolic_tangent(sum_at(x + 2 * dim, u_new, i, left));
    store_first(next + i, interpolate(update, load_first(hidden + i, left), fresh), left);
  }
}

void lstm_cell(const float* x, const float* u, const float* memory, int dim, float* next, float* next_memory) {
  for (int i = 0; i < dim; i += kLanes) {
    const int left = dim - i;
    const Floats input = sigmoid(sum_at(x, u, i, left)), forget = sigmoid(sum_at(x, u, dim + i, left));
    const Floats fresh = hyperbolic_tangent(sum_at(x, u, 2 * dim + i, left));
    const Floats output = sigmoid(sum_at(x, u, 3 * dim + i, left));
    const Floats memory_out = add(mul(forget, load_first(memory + i, left)), mul(input, fresh));
    store_first(next_memory + i, memory_out, left);
    store_first(next + i, mul(output, hyperbolic_tangent(memory_out)), left);
  }
}

void ssru_cell(const float* gates, const float* memory, int dim, float* out, float* next_memory) {
  for (int i = 0; i < dim; i += kLanes) {
    const int left = dim - i;
    const Floats forget = sigmoid(load_first(gates + i, left)), fresh = load_first(gates + dim + i, left);
    const Floats memory_out = interpolate(forget, load_first(memory + i, left), fresh);
    store_first(next_memory + i, memory_out, left);
    store_first(out + i, max(zeros(), memory_out), left);  // in this order a NaN stays one
  }
}

template <bool IsAdditive>
INLINE float state_score(const StatesAttention& row, const float* key) {
  Floats sum = zeros();
  for (int i = 0; i < row.key_dim; i += kLanes) {
    const int left = row.key_dim - i;
    const Floats query = load_first(row.query + i, left), key_vector = load_first(key + i, left);
    if constexpr (IsAdditive) {
      sum = fma(load_first(row.score_weight + i, left), hyperbolic_tangent(add(query, key_vector)), sum);
    } else {
      sum = fma(query, key_vector, sum);
    }
  }
  return sum_of(sum) * row.scale;
}

// Sum up `Vectors` vectors of all values by the weights.
template <int Vectors>
INLINE void sum_values(const StatesAttention& row, int first) {
  Floats sums[Vectors];
  for (int v = 0; v < Vectors; v++) sums[v] = zeros();
  const float* value = row.values + first;
  for (int j = 0; j < row.length; j++, value += row.value_dim) {
    for (int v = 0; v < Vectors; v++) {
      const int at = v * kLanes;
      sums[v] = fma(all(row.weights[j]), load_first(value + at, row.value_dim - first - at), sums[v]);
    }
  }
  for (int v = 0; v < Vectors; v++) {
    store_first(row.context + first + v * kLanes, sums[v], row.value_dim - first - v * kLanes);
  }
}

void attend_to_states(const StatesAttention& row) {
  constexpr int kVectorsAtOnce = 8;
  for (int j = 0; j < row.length; j++) {
    const float* const key = row.keys + size_t(j) * row.key_dim;
    row.weights[j] = row.score_weight ? state_score<true>(row, key) : state_score<false>(row, key);
  }
  const float total = exponentiate(row.weights, row.length, max_score(row.weights, row.length));
  for (int j = 0; j < row.length; j++) row.weights[j] /= total;
  int first = 0;
  for (; first + kVectorsAtOnce * kLanes <= row.value_dim; first += kVectorsAtOnce * kLanes) {
    sum_values<kVectorsAtOnce>(row, first);
  }
  for (; first < row.value_dim; first += kLanes) sum_values<1>(row, first);
}

}  // namespace
