// Products of int8 rows with Arm's instructions for dot products and for products of matrices;
// included by kernels.cpp for the instruction sets that have them.
#pragma once

#include "vectors.h"

namespace {

constexpr int kInputsAtOnce = 16;         // of a row, in one register
constexpr int kRegisters = kTile / 4;     // of four inputs of a tile's channels
constexpr int kGroupBytes = kTile * 4;    // of these registers

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

#if defined(__ARM_FEATURE_MATMUL_INT8)

// Multiply rows by `Vectors` vectors of channels of a tile, from `vector` on. One instruction adds the products of
// eight inputs of two rows and of two channels to the four sums of both.
template <int Rows, int Vectors, bool AreFirst>
INLINE void multiply_pairs(const PackedLinear& layer, int tile, int vector, const int8_t* rows, const float* absmaxes,
                           float* out) {
  constexpr int kPairs = (Rows + 1) / 2, kInputs = 8;
  const int channel = tile * kTile + vector * kLanes;
  if (channel >= layer.outputs) return;
  const int8_t* weights = layer.weights + size_t(tile) * kTile * layer.padded_inputs + vector * kLanes * 4;
  int32x4_t sums[kPairs][4 * Vectors] = {};
  for (int k = 0; k < layer.padded_inputs; k += kInputs, weights += 2 * kGroupBytes) {
    int8x16_t inputs[kPairs];
    for (int p = 0; p < kPairs; p++) {
      const int second = 2 * p + 1 < Rows ? 2 * p + 1 : 2 * p;  // the last of an odd number twice
      inputs[p] = vcombine_s8(vld1_s8(rows + size_t(2 * p) * layer.padded_inputs + k),
                              vld1_s8(rows + size_t(second) * layer.padded_inputs + k));
    }
    if (AreFirst) __builtin_prefetch(weights + 4096);
    if (AreFirst) __builtin_prefetch(weights + 4096 + kGroupBytes);
#pragma GCC unroll 4
    for (int c = 0; c < 2 * Vectors; c++) {
      const int32x4_t first = vreinterpretq_s32_s8(vld1q_s8(weights + 16 * c));  // four inputs of four channels
      const int32x4_t last = vreinterpretq_s32_s8(vld1q_s8(weights + 16 * c + kGroupBytes));
      const int8x16_t columns[] = {vreinterpretq_s8_s32(vzip1q_s32(first, last)),
                                   vreinterpretq_s8_s32(vzip2q_s32(first, last))};
      for (int half = 0; half < 2; half++) {
        for (int p = 0; p < kPairs; p++) {
          int32x4_t& sum = sums[p][2 * c + half];
          sum = vmmlaq_s32(sum, inputs[p], columns[half]);
        }
      }
    }
  }
  for (int r = 0; r < Rows; r++) {
    for (int v = 0; v < Vectors && channel + v * kLanes < layer.outputs; v++) {
      const auto four = [&](int at) {  // channels of this row
        const int64x2_t a = vreinterpretq_s64_s32(sums[r / 2][at]), b = vreinterpretq_s64_s32(sums[r / 2][at + 1]);
        return vreinterpretq_s32_s64(r % 2 == 0 ? vzip1q_s64(a, b) : vzip2q_s64(a, b));
      };
      apply_epilogue(layer, channel + v * kLanes, {four(4 * v), four(4 * v + 2)}, absmaxes[r], out + size_t(r) * layer.outputs);
    }
  }
}

// The sums of eight rows with half a tile fill the registers, as do those of four with a whole one.
template <int Rows, bool AreFirst>
void multiply_tile_by_pairs(const PackedLinear& layer, int tile, const uint8_t* quantised, const float* absmaxes, float* out) {
  const auto* const rows = reinterpret_cast<const int8_t*>(quantised);
  if (Rows <= 4) return multiply_pairs<Rows, 2, AreFirst>(layer, tile, 0, rows, absmaxes, out);
  multiply_pairs<Rows, 1, AreFirst>(layer, tile, 0, rows, absmaxes, out);
  multiply_pairs<Rows, 1, false>(layer, tile, 1, rows, absmaxes, out);
}

#endif

}  // namespace
