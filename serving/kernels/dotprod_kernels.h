// Products of int8 rows with Arm's instructions for products of matrices, or else for dot products; included by
// kernels.cpp for the instruction sets that have them.
#pragma once

#include "vectors.h"

namespace {

constexpr int kInputsAtOnce = 16;  // of a row, in one register

#if defined(__ARM_FEATURE_MATMUL_INT8)

constexpr int kGroupInputs = 8;

// Multiply rows by `Vectors` vectors of channels of a tile, from `vector` on. One instruction adds the products of
// eight inputs of two rows and of two channels to the four sums of both. An odd number's last row is multiplied
// twice.
template <int Rows, int Vectors, bool AreFirst>
INLINE void multiply_pairs(const PackedLinear& layer, int tile, int vector, const int8_t* rows, const float* absmaxes,
                           float* out) {
  constexpr int kPairs = (Rows + 1) / 2, kColumns = Vectors * kLanes / 2;  // pairs of channels
  constexpr int kGroupBytes = kTile * kGroupInputs;
  const int channel = tile * kTile + vector * kLanes;
  if (channel >= layer.outputs) return;
  const int8_t* weights = layer.weights + size_t(tile) * kTile * layer.padded_inputs + vector * kLanes * kGroupInputs;
  const int8_t* row[2 * kPairs];
  for (int r = 0; r < 2 * kPairs; r++) row[r] = rows + size_t(r < Rows ? r : r - 1) * layer.padded_inputs;
  int32x4_t sums[kPairs][kColumns] = {};
  for (int k = 0; k < layer.padded_inputs; k += kInputsAtOnce) {
    int8x16_t inputs[2][kPairs];  // of each half of the inputs
    for (int p = 0; p < kPairs; p++) {
      const int64x2_t first = vreinterpretq_s64_s8(vld1q_s8(row[2 * p] + k));
      const int64x2_t second = vreinterpretq_s64_s8(vld1q_s8(row[2 * p + 1] + k));
      inputs[0][p] = vreinterpretq_s8_s64(vzip1q_s64(first, second));
      inputs[1][p] = vreinterpretq_s8_s64(vzip2q_s64(first, second));
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++, weights += kGroupBytes) {
      for (int line = 0; AreFirst && line < kGroupBytes; line += 64) __builtin_prefetch(weights + 4096 + line);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; c++) {
        const int8x16_t columns = vld1q_s8(weights + 16 * c);
        for (int p = 0; p < kPairs; p++) sums[p][c] = vmmlaq_s32(sums[p][c], inputs[half][p], columns);
      }
    }
  }
  const auto apply = [&](int r, int v, const int32x4_t* columns, auto choose_row) {
    if (r >= Rows || channel + v * kLanes >= layer.outputs) return;
    const Integers sum{choose_row(columns[0], columns[1]), choose_row(columns[2], columns[3])};
    apply_epilogue(layer, channel + v * kLanes, sum, absmaxes[r], out + size_t(r) * layer.outputs);
  };
  for (int p = 0; p < kPairs; p++) {
    for (int v = 0; v < Vectors; v++) {
      const int32x4_t* const columns = &sums[p][v * kLanes / 2];
      apply(2 * p, v, columns, [](int32x4_t a, int32x4_t b) {
        return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
      });
      apply(2 * p + 1, v, columns, [](int32x4_t a, int32x4_t b) {
        return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
      });
    }
  }
}

// Multiply `Rows` rows by the channels of a tile. The sums of eight rows with half of them fill the registers, as do
// those of four with all. The first rows fetch the weights that follow into the cache.
template <int Rows, bool AreFirst>
void multiply_tile(const PackedLinear& layer, int tile, const uint8_t* quantised, const float* absmaxes, float* out) {
  const auto* const rows = reinterpret_cast<const int8_t*>(quantised);
  constexpr int kVectorsAtOnce = Rows <= 4 ? kVectors : kVectors / 2;
  for (int v = 0; v < kVectors; v += kVectorsAtOnce) {
    multiply_pairs<Rows, kVectorsAtOnce, AreFirst>(layer, tile, v, rows, absmaxes, out);
  }
}

#else

constexpr int kGroupInputs = 4;
constexpr int kRegisters = kTile / 4;             // of a group of a tile's channels
constexpr int kGroupBytes = kTile * kGroupInputs;

// Add the products of four bytes of each channel with a group of four inputs.
INLINE int32x4_t add_products(int32x4_t sum, int8x16_t weights, int8x16_t inputs, int group) {
  switch (group) {  // known where this is inlined
    case 0: return vdotq_laneq_s32(sum, weights, inputs, 0);
    case 1: return vdotq_laneq_s32(sum, weights, inputs, 1);
    case 2: return vdotq_laneq_s32(sum, weights, inputs, 2);
    default: return vdotq_laneq_s32(sum, weights, inputs, 3);
  }
}

// Multiply `Rows` rows by the channels of a tile. Few rows have two sums each, of even and of odd groups, to hide
// the latency of the instruction. The first rows fetch the weights that follow into the cache.
template <int Rows, bool AreFirst>
void multiply_tile(const PackedLinear& layer, int tile, const uint8_t* quantised, const float* absmaxes, float* out) {
  constexpr int kSums = Rows <= 2 ? 2 : 1;
  const int channel = tile * kTile;
  const int8_t* weights = layer.weights + size_t(channel) * layer.padded_inputs;
  const auto* const rows = reinterpret_cast<const int8_t*>(quantised);
  int32x4_t sums[kSums][Rows][kRegisters] = {};
  for (int k = 0; k < layer.padded_inputs; k += kInputsAtOnce) {
    int8x16_t inputs[Rows];
    for (int r = 0; r < Rows; r++) inputs[r] = vld1q_s8(rows + size_t(r) * layer.padded_inputs + k);
#pragma GCC unroll 4
    for (int group = 0; group < kInputsAtOnce / 4; group++, weights += kGroupBytes) {
      if (AreFirst) __builtin_prefetch(weights + 4096);
#pragma GCC unroll 4
      for (int c = 0; c < kRegisters; c++) {
        const int8x16_t column = vld1q_s8(weights + 16 * c);
        for (int r = 0; r < Rows; r++) {
          int32x4_t& sum = sums[group % kSums][r][c];
          sum = add_products(sum, column, inputs[r], group);
        }
      }
    }
  }
  for (int r = 0; r < Rows; r++) {
    for (int v = 0; v < kVectors && channel + v * kLanes < layer.outputs; v++) {
      Integers sum{sums[0][r][2 * v], sums[0][r][2 * v + 1]};
      if (kSums == 2) sum = plus(sum, {sums[1][r][2 * v], sums[1][r][2 * v + 1]});
      apply_epilogue(layer, channel + v * kLanes, sum, absmaxes[r], out + size_t(r) * layer.outputs);
    }
  }
}

#endif

}  // namespace
