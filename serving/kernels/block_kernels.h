// Products with weights in blocks; included by kernels.cpp for each instruction set.
//
// A block is 16 or 32 inputs of a channel or of a row, which share a scale. Sums within a block are integers, so
// exact in any order; those of blocks are added one after the other, by every kernel in the same way. So a row has
// the same bits whatever it is multiplied with.
#pragma once

#include "vectors.h"

namespace {

constexpr int kPanelVectors = kPanel / kLanes;

// Quantise a row: quantised values of -127 to 127, and of each block its scale and what the zero of the weights
// adds to its sums, negated.
void quantise_blocks(const float* row, int inputs, const QuantisedRow& out) {
  for (int first = 0, b = 0; first < inputs; first += out.block, b += out.stride) {
    int8_t* const values = out.values + size_t(b) * out.block;
    Floats x[kMostBlockInputs / kLanes], largest = zeros();
    const int vectors = out.block / kLanes;
    for (int i = 0; i < vectors; i++) {
      const int num_values = inputs - first - i * kLanes;
      x[i] = num_values > 0 ? load_first(row + first + i * kLanes, num_values) : zeros();
      largest = max_magnitude(largest, x[i]);
    }
    const float scale = nan_if_infinite(max_magnitude_of(largest) / 127), factor = scale != 0 ? 1 / scale : 0;
    Integers sums = no_integers();
    for (int i = 0; i < vectors; i++) {
      const Integers quantised = to_integers(mul(x[i], all(factor)));
      sums = plus(sums, quantised);
      store_bytes(values + i * kLanes, quantised, kLanes);
    }
    out.scales[b] = scale;
    // What NaN is converted to would overflow the sum, which a scale of NaN leaves without effect.
    out.offsets[b] = scale == scale ? -out.zero * sum_of(sums) : 0;
  }
}

// The weights of a panel, whose blocks of `Block` inputs have scales of type `Scale`: fp16 as uint16_t, or float.
template <int Bits, int Block, class Scale>
struct Panel {
  static constexpr int kLoads = Block * Bits / 32;  // groups of four bytes a channel
  static constexpr int kBytes = kLoads * kPanel * 4;  // of a block

  Panel(const PackedBlocks& layer, int panel)
      : weights(reinterpret_cast<const int8_t*>(layer.weights) + size_t(panel) * layer.blocks * kBytes),
        scales(static_cast<const Scale*>(layer.scales) + size_t(panel) * layer.blocks * kPanel) {}

  const int8_t* weights;
  const Scale* scales;
};

// Add the products of four inputs of each row with vectors of channels. stride: from one row's inputs to the next.
template <bool IsNarrow, int Rows, int Vectors>
INLINE void add_products(Integers (&sums)[Rows][Vectors], const Integers (&columns)[Vectors],
                         const int8_t* inputs, int stride) {
#pragma GCC unroll 8
  for (int r = 0; r < Rows; r++) {
    int32_t four;
    std::memcpy(&four, inputs + r * stride, 4);
    const Integers all_four = all_integers(four);
    for (int v = 0; v < Vectors; v++) {
      if constexpr (IsNarrow) {
        sums[r][v] = narrow_dot4(sums[r][v], columns[v], all_four);
      } else {
        sums[r][v] = dot4(sums[r][v], columns[v], all_four);
      }
    }
  }
}

constexpr int kAhead = 4096;  // bytes that weights are fetched into the cache ahead of their use
// The sums of some rows fill the registers. Of unrolled loops the compiler adds AVX2's products in another order,
// for which there are not registers enough: half the speed.
constexpr int kMostBlockRows = kLanes == 16 ? 8 : 4, kUnrolledLoads = kNarrowSums ? 1 : 8;

// Multiply `Rows` rows of a group, from `row` on, by `Vectors` vectors of a panel's channels, from `vector` on.
// ahead: kAhead, or 0 for weights that are in the cache.
template <int Bits, int Block, class Scale, int Rows, int Vectors>
INLINE void multiply_block_rows(const PackedBlocks& layer, int panel, int vector, int ahead, int row,
                         const QuantisedBlocks& group, float* out) {
  using PanelType = Panel<Bits, Block, Scale>;
  constexpr bool kIsNarrow = kNarrowSums && Bits == 4;
  const PanelType start(layer, panel);
  const int8_t* weights = start.weights + vector * kLanes * 4;
  const Scale* scales = start.scales + vector * kLanes;
  const int8_t* values = group.values + row * Block;
  Floats totals[Rows][Vectors];
  for (int r = 0; r < Rows; r++) {
    for (int v = 0; v < Vectors; v++) totals[r][v] = zeros();
  }
  for (int b = 0; b < layer.blocks; b++, weights += PanelType::kBytes, scales += kPanel, values += group.rows * Block) {
    const size_t first = size_t(b) * group.rows + row;
    __builtin_prefetch(scales + ahead / PanelType::kBytes * kPanel);
    Integers sums[Rows][Vectors];
    for (int r = 0; r < Rows; r++) {
      for (int v = 0; v < Vectors; v++) sums[r][v] = kIsNarrow ? no_integers() : all_integers(group.offsets[first + r]);
    }
#pragma GCC unroll kUnrolledLoads
    for (int i = 0; i < PanelType::kLoads; i++) {
      const int8_t* const bytes = weights + i * kPanel * 4;
      __builtin_prefetch(bytes + ahead);
      Integers columns[Vectors], upper_columns[Vectors];
      for (int v = 0; v < Vectors; v++) {
        columns[v] = load_bytes(bytes + v * kLanes * 4);
        if (Bits == 4) {
          upper_columns[v] = upper_halves(columns[v]);
          columns[v] = lower_halves(columns[v]);
        }
      }
      add_products<kIsNarrow>(sums, columns, values + 32 / Bits * i, Block);
      if (Bits == 4) add_products<kIsNarrow>(sums, upper_columns, values + 32 / Bits * i + 4, Block);
    }
    for (int v = 0; v < Vectors; v++) {
      const Floats scale = load(scales + v * kLanes);
      for (int r = 0; r < Rows; r++) {
        Integers sum = sums[r][v];
        if constexpr (kIsNarrow) sum = plus(wide_sums(sums[r][v]), all_integers(group.offsets[first + r]));
        totals[r][v] = fma(mul(to_floats(sum), scale), all(group.scales[first + r]), totals[r][v]);
      }
    }
  }
  for (int r = 0; r < Rows; r++) {
    for (int v = 0; v < Vectors; v++) {
      const int channel = panel * kPanel + (vector + v) * kLanes, left = layer.outputs - channel;
      if (left <= 0) break;
      const Floats y = layer.bias == nullptr ? totals[r][v] : add(totals[r][v], load(layer.bias + channel));
      store_first(out + size_t(row + r) * layer.outputs + channel, y, left);
    }
  }
}

// Multiply `Rows` rows of a group by a panel.
template <int Bits, int Block, class Scale, int Rows>
void multiply_block_panel(const PackedBlocks& layer, int panel, int ahead, int row, const QuantisedBlocks& group,
                          float* out) {
  constexpr int kVectors = Rows == 1 ? kPanelVectors : 1;
  for (int vector = 0; vector < kPanelVectors; vector += kVectors) {
    const int vector_ahead = vector == 0 ? ahead : 0;  // whose cache lines hold the other vector, too
    multiply_block_rows<Bits, Block, Scale, Rows, kVectors>(layer, panel, vector, vector_ahead, row, group, out);
  }
}

using MultiplyBlockPanel = void (*)(const PackedBlocks&, int, int, int, const QuantisedBlocks&, float*);

template <int Bits, int Block, class Scale>
constexpr MultiplyBlockPanel kMultiplyBlockPanel[] = {
    multiply_block_panel<Bits, Block, Scale, 1>, multiply_block_panel<Bits, Block, Scale, 2>,
    multiply_block_panel<Bits, Block, Scale, 3>, multiply_block_panel<Bits, Block, Scale, 4>,
#if defined(__AVX512VNNI__)
    multiply_block_panel<Bits, Block, Scale, 5>, multiply_block_panel<Bits, Block, Scale, 6>,
    multiply_block_panel<Bits, Block, Scale, 7>, multiply_block_panel<Bits, Block, Scale, 8>,
#endif
};

// Return the group of quantised rows that begins with a row.
INLINE QuantisedBlocks group_of(const QuantisedBlocks& in, int first, const PackedBlocks& layer) {
  const size_t blocks = size_t(first) * layer.blocks;
  const int64_t left = in.rows - first;
  const int rows = left < kGroupRows ? left : kGroupRows;
  return {rows, in.values + blocks * layer.block, in.scales + blocks, in.offsets + blocks};
}

#if defined(__AMX_INT8__)

// Intel's Advanced Matrix Extensions: 16 rows by a panel by a block's inputs in one instruction, whose sums are then
// scaled by vectors. Tiles 0 and 1 are the sums of blocks in turns, 2 and 3 inputs, and 4 and 5 weights.
constexpr int kTileBytes = 64;
constexpr int kFewBlockRows = 8;       // for which products of vectors are faster than reading the weights
constexpr int kUnpackedInputs = 1024;  // at once: 16 KiB of a panel

template <int Block>
void configure_block_tiles() {
  AmxConfiguration configuration;
  for (int tile = 0; tile < 6; tile++) {
    const bool is_weights = tile >= 4, is_inputs = !is_weights && tile >= 2;
    configuration.bytes[tile] = is_inputs ? Block : kTileBytes;
    configuration.rows[tile] = is_weights ? Block / 4 : kGroupRows;
  }
  _tile_loadconfig(&configuration);
}

// Unpack blocks of a panel to signed bytes [blocks, Block / 4, kPanel, 4].
template <int Bits, int Block>
INLINE void unpack_weights(const int8_t* weights, int blocks, int8_t* unpacked) {
  const Integers zero = _mm512_set1_epi8(Bits == 4 ? 8 : -128);
  for (int i = 0; i < blocks * Block * Bits / 32; i++, weights += kTileBytes) {
    const Integers bytes = load_bytes(weights);
    _mm512_store_si512(unpacked, _mm512_sub_epi8(Bits == 4 ? lower_halves(bytes) : bytes, zero));
    unpacked += kTileBytes;
    if (Bits == 4) {
      _mm512_store_si512(unpacked, _mm512_sub_epi8(upper_halves(bytes), zero));
      unpacked += kTileBytes;
    }
  }
}

// Compute the sums of a block's products [kGroupRows, kPanel] with the tiles of odd or even blocks.
template <int Block, bool IsOdd>
INLINE void multiply_block_tile(const int8_t* values, const int8_t* weights, int32_t* sums) {
  if constexpr (IsOdd) {
    _tile_zero(1);
    _tile_loadd(3, values, Block);
    _tile_loadd(5, weights, kTileBytes);
    _tile_dpbssd(1, 3, 5);
    _tile_stored(1, sums, kTileBytes);
  } else {
    _tile_zero(0);
    _tile_loadd(2, values, Block);
    _tile_loadd(4, weights, kTileBytes);
    _tile_dpbssd(0, 2, 4);
    _tile_stored(0, sums, kTileBytes);
  }
}

// Blocks of a panel, unpacked, from the block `first` on. next_weights: packed ones that are fetched into the cache
// meanwhile, unless null.
struct UnpackedBlocks {
  int first, number;
  const int8_t* weights;
  const int8_t* next_weights;
};

// Add the products of some blocks to the outputs of a group of rows. It may have fewer than kGroupRows: sums of what
// lies behind them in memory are computed, too, and dropped.
template <int Bits, int Block, class Scale>
void add_block_tiles(const PackedBlocks& layer, int panel, const UnpackedBlocks& blocks, const QuantisedBlocks& group,
                     float* out) {
  using PanelType = Panel<Bits, Block, Scale>;
  constexpr int kUnpackedBytes = Block * kPanel;
  const Scale* scales = PanelType(layer, panel).scales + size_t(blocks.first) * kPanel;
  const size_t first = size_t(blocks.first) * group.rows;
  const int8_t* const values = group.values + first * Block;
  const float* row_scales = group.scales + first;
  const int channel = panel * kPanel, left = layer.outputs - channel;
  alignas(64) int32_t sums[2][kGroupRows * kPanel];
  Floats totals[kGroupRows];
#pragma GCC unroll 16
  for (int r = 0; r < kGroupRows; r++) {
    const bool has_sum = blocks.first > 0 && r < group.rows;
    totals[r] = has_sum ? load_first(out + size_t(r) * layer.outputs + channel, left) : zeros();
  }
  multiply_block_tile<Block, false>(values, blocks.weights, sums[0]);
  for (int b = 0; b < blocks.number; b++, scales += kPanel, row_scales += group.rows) {
    const int next = b + 1 < blocks.number ? b + 1 : b;  // computed while the vectors scale the sums of this one
    const int8_t* const next_values = values + size_t(next) * group.rows * Block;
    const int8_t* const next_weights = blocks.weights + next * kUnpackedBytes;
    if (next % 2 == 0) {
      multiply_block_tile<Block, false>(next_values, next_weights, sums[0]);
    } else {
      multiply_block_tile<Block, true>(next_values, next_weights, sums[1]);
    }
    for (int i = 0; blocks.next_weights != nullptr && i < PanelType::kBytes; i += kTileBytes) {
      __builtin_prefetch(blocks.next_weights + size_t(b) * PanelType::kBytes + i);
    }
    const Floats scale = load(scales);
#pragma GCC unroll 16
    for (int r = 0; r < kGroupRows; r++) {
      const Floats sum = to_floats(load_integers(sums[b % 2] + r * kPanel));
      totals[r] = fma(mul(sum, scale), all(row_scales[r]), totals[r]);
    }
  }
  const bool is_last = blocks.first + blocks.number == layer.blocks;
#pragma GCC unroll 16
  for (int r = 0; r < kGroupRows; r++) {
    if (r >= group.rows) break;
    const Floats y = is_last && layer.bias != nullptr ? add(totals[r], load(layer.bias + channel)) : totals[r];
    store_first(out + size_t(r) * layer.outputs + channel, y, left);
  }
}

template <int Bits, int Block, class Scale>
void multiply_block_panels_with_amx(const PackedBlocks& layer, int first_panel, int last_panel,
                                    const QuantisedBlocks& in, float* out) {
  using PanelType = Panel<Bits, Block, Scale>;
  constexpr int kBlocksAtOnce = kUnpackedInputs / Block;
  alignas(64) int8_t unpacked[kUnpackedInputs * kPanel];
  configure_block_tiles<Block>();
  for (int panel = first_panel; panel < last_panel; panel++) {
    for (int block = 0; block < layer.blocks; block += kBlocksAtOnce) {
      const int left = layer.blocks - block, number = left < kBlocksAtOnce ? left : kBlocksAtOnce;
      const int8_t* const weights = PanelType(layer, panel).weights + size_t(block) * PanelType::kBytes;
      unpack_weights<Bits, Block>(weights, number, unpacked);
      UnpackedBlocks blocks{block, number, unpacked, weights + size_t(number) * PanelType::kBytes};
      for (int row = 0; row < in.rows; row += kGroupRows) {
        float* const group_out = out + size_t(row) * layer.outputs;
        add_block_tiles<Bits, Block, Scale>(layer, panel, blocks, group_of(in, row, layer), group_out);
        blocks.next_weights = nullptr;
      }
    }
  }
  _tile_release();
}

#endif

// The rows pass in groups, which are cut into equal parts of at most kMostBlockRows. The first part brings a
// panel's weights into the cache.
template <int Bits, int Block, class Scale>
void multiply_block_panels(const PackedBlocks& layer, int first_panel, int last_panel, const QuantisedBlocks& in,
                           float* out) {
#if defined(__AMX_INT8__)
  if (in.rows > kFewBlockRows) {
    return multiply_block_panels_with_amx<Bits, Block, Scale>(layer, first_panel, last_panel, in, out);
  }
#endif
  for (int panel = first_panel; panel < last_panel; panel++) {
    int ahead = kAhead;
    for (int first = 0; first < in.rows; first += kGroupRows) {
      const QuantisedBlocks group = group_of(in, first, layer);
      float* const group_out = out + size_t(first) * layer.outputs;
      for (int row = 0; row < group.rows;) {
        const int left = int(group.rows) - row, parts = (left + kMostBlockRows - 1) / kMostBlockRows;
        const int rows = (left + parts - 1) / parts;
        kMultiplyBlockPanel<Bits, Block, Scale>[rows - 1](layer, panel, ahead, row, group, group_out);
        row += rows;
        ahead = 0;
      }
    }
  }
}

template <int Bits>
void multiply_blocks_of(const PackedBlocks& layer, int first_panel, int last_panel, const QuantisedBlocks& in,
                        float* out) {
  if (layer.block == kLeastBlockInputs) {
    multiply_block_panels<Bits, kLeastBlockInputs, float>(layer, first_panel, last_panel, in, out);
  } else if (layer.has_half_scales) {
    multiply_block_panels<Bits, kMostBlockInputs, uint16_t>(layer, first_panel, last_panel, in, out);
  } else {
    multiply_block_panels<Bits, kMostBlockInputs, float>(layer, first_panel, last_panel, in, out);
  }
}

void multiply_blocks(const PackedBlocks& layer, int first_panel, int last_panel, const QuantisedBlocks& in,
                     float* out) {
  (layer.bits == 4 ? multiply_blocks_of<4> : multiply_blocks_of<8>)(layer, first_panel, last_panel, in, out);
}

}  // namespace
