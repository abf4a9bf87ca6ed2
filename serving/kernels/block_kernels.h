// Products with weights in blocks; included by kernels.cpp for each instruction set.
#pragma once

#include "vectors.h"

namespace {

// Quantise a row: quantised values of -127 to 127, and of each block its scale and what the zero of the weights
// adds to its sums, negated.
void quantise_blocks(const float* row, int inputs, int zero, int8_t* quantised, float* scales, int32_t* offsets) {
  for (int first = 0; first < inputs; first += kBlockInputs, quantised += kBlockInputs) {
    const int left = inputs - first;
    Floats x[kBlockInputs / kLanes], largest = zeros();
    for (int i = 0; i < kBlockInputs / kLanes; i++) {
      const int num_values = left - i * kLanes;
      x[i] = num_values > 0 ? load_first(row + first + i * kLanes, num_values) : zeros();
      largest = max_magnitude(largest, x[i]);
    }
    const float scale = nan_if_infinite(max_magnitude_of(largest) / 127), factor = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < kBlockInputs / kLanes; i++) {
      store_bytes(quantised + i * kLanes, to_integers(mul(x[i], all(factor))), kLanes);
    }
    int32_t sum = 0;
    for (int i = 0; i < kBlockInputs; i++) sum += quantised[i];
    *scales++ = scale;
    *offsets++ = kSignedValues ? 0 : -zero * sum;
  }
}

constexpr int kAhead = 4096;  // bytes that weights are fetched ahead of their use

// Load a vector of channels of a block: its weights, as numbers of 8 bits.
template <int Bits>
INLINE void load_columns(const int8_t* weights, Integers (&columns)[kBlockInputs / 4]) {
  for (int i = 0; i < kBlockInputs * Bits / 32; i++) {
    const int8_t* const bytes_of_inputs = weights + i * kBlockTile * 4;
    __builtin_prefetch(bytes_of_inputs + kAhead);
    const Integers bytes = load_bytes(bytes_of_inputs);
    if (Bits == 8) {
      columns[i] = bytes;
    } else {
      columns[2 * i] = lower_halves(bytes);
      columns[2 * i + 1] = upper_halves(bytes);
    }
  }
}

// Multiply `Rows` rows by `Vectors` vectors of channels of a tile, from `channel` on.
template <int Bits, int Rows, int Vectors>
void multiply_blocks_of(const PackedBlocks& layer, int channel, int64_t row, const QuantisedBlocks& in, float* out) {
  const size_t start = size_t(channel / kBlockTile) * layer.blocks * kBlockTile;
  constexpr int kBytes = kBlockInputs * Bits / 8;  // of a channel's block
  const auto* weights = reinterpret_cast<const int8_t*>(layer.weights + start * kBytes) + channel % kBlockTile * 4;
  const float* scales = layer.scales + start + channel % kBlockTile;
  const size_t first = size_t(row) * layer.blocks;
  const int8_t* const quantised = in.quantised + first * kBlockInputs;
  const float* const row_scales = in.scales + first;
  const int32_t* const offsets = in.offsets + first;
  Floats sums[Rows][Vectors];
  for (int r = 0; r < Rows; r++) {
    for (int v = 0; v < Vectors; v++) sums[r][v] = zeros();
  }
  for (int b = 0; b < layer.blocks; b++, weights += kBytes * kBlockTile, scales += kBlockTile) {
    Integers columns[Vectors][kBlockInputs / 4];
    Floats scale[Vectors];
    for (int v = 0; v < Vectors; v++) {
      scale[v] = load(scales + v * kLanes);
      __builtin_prefetch(scales + v * kLanes + kAhead / 4);
      load_columns<Bits>(weights + v * kLanes * 4, columns[v]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      const int block = r * layer.blocks + b;
      Integers sum[Vectors];
      for (int v = 0; v < Vectors; v++) sum[v] = all_integers(offsets[block]);
      for (int k = 0; k < kBlockInputs / 4; k++) {
        int32_t four;
        std::memcpy(&four, quantised + size_t(block) * kBlockInputs + 4 * k, 4);
        const Integers inputs = all_integers(four);
        for (int v = 0; v < Vectors; v++) sum[v] = dot4(sum[v], columns[v][k], inputs);
      }
      const Floats factor = all(row_scales[block]);
      for (int v = 0; v < Vectors; v++) sums[r][v] = fma(mul(to_floats(sum[v]), scale[v]), factor, sums[r][v]);
    }
  }
  for (int r = 0; r < Rows; r++) {
    float* const to = out + size_t(row + r) * layer.outputs;
    for (int v = 0; v < Vectors && channel + v * kLanes < layer.outputs; v++) {
      const int index = channel + v * kLanes;
      const Floats y = layer.bias == nullptr ? sums[r][v] : add(sums[r][v], load(layer.bias + index));
      store_first(to + index, y, layer.outputs - index);
    }
  }
}

template <int Bits, int Rows, int Vectors>
void multiply_block_tile(const PackedBlocks& layer, int tile, int64_t row, const QuantisedBlocks& in, float* out) {
  for (int channel = tile * kBlockTile; channel < (tile + 1) * kBlockTile && channel < layer.outputs; channel += Vectors * kLanes) {
    multiply_blocks_of<Bits, Rows, Vectors>(layer, channel, row, in, out);
  }
}

// The sums of some rows by some vectors fill the registers.
using MultiplyBlocks = void (*)(const PackedBlocks&, int, int64_t, const QuantisedBlocks&, float*);
#if defined(__AVX512VNNI__)
constexpr int kMostBlockRows = 8;
template <int Bits>
constexpr MultiplyBlocks kMultiplyBlocks[] = {
    multiply_block_tile<Bits, 1, 2>, multiply_block_tile<Bits, 2, 2>, multiply_block_tile<Bits, 3, 2>,
    multiply_block_tile<Bits, 4, 2>, multiply_block_tile<Bits, 5, 2>, multiply_block_tile<Bits, 6, 2>,
    multiply_block_tile<Bits, 7, 2>, multiply_block_tile<Bits, 8, 2>,
};
#else
constexpr int kMostBlockRows = 4;
template <int Bits>
constexpr MultiplyBlocks kMultiplyBlocks[] = {
    multiply_block_tile<Bits, 1, 2>, multiply_block_tile<Bits, 2, 1>, multiply_block_tile<Bits, 3, 1>,
    multiply_block_tile<Bits, 4, 1>,
};
#endif

void multiply_blocks(const PackedBlocks& layer, int first_tile, int last_tile, int64_t rows, const QuantisedBlocks& in,
                     float* out) {
  for (int tile = first_tile; tile < last_tile; tile++) {
    for (int64_t row = 0; row < rows;) {
      const int64_t parts = (rows - row + kMostBlockRows - 1) / kMostBlockRows, num_rows = (rows - row + parts - 1) / parts;
      (layer.bits == 4 ? kMultiplyBlocks<4> : kMultiplyBlocks<8>)[num_rows - 1](layer, tile, row, in, out);
      row += num_rows;
    }
  }
}

}  // namespace
