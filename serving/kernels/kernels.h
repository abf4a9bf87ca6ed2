// The kernels that exist once for each instruction set, and the one that this processor uses.
#pragma once

#include <cstdint>

constexpr int kMostHeadDim = 256;

// An int8 linear layer. Weights are packed by tiles of Kernels::tile_channels: for each four inputs,
// four bytes of each of the tile's channels, so that one instruction multiplies four inputs by one channel.
struct PackedLinear {
  int inputs = 0, outputs = 0;
  int padded_inputs = 0;              // a multiple of Kernels::inputs_multiple; the padding is zero
  int tiles = 0;
  const int8_t* weights = nullptr;    // [tiles, padded_inputs / 4, tile_channels, 4]
  const int32_t* offsets = nullptr;   // what unsigned inputs add to the sums, negated
  const float* scales = nullptr;      // of a channel, times 1/127
  const float* bias = nullptr;
};

// Inputs that share a scale, at least and at most; output channels whose weights are stored together; rows of
// quantised inputs that are stored together.
constexpr int kLeastBlockInputs = 16, kMostBlockInputs = 32, kPanel = 16, kGroupRows = 16;

// A linear layer with a scale for each block of inputs of a channel. Weights are packed by panels of channels,
// blocks and four inputs, four bytes of each of the panel's channels; of 8 bits unsigned with zero at 128, or signed
// where quantised inputs are. Of 4 bits, with zero at 8, the lower halves of bytes are four inputs and the
// upper halves the next four. Scales are fp16 where that is exact, and always in blocks of 32.
struct PackedBlocks {
  int inputs = 0, outputs = 0, bits = 8;
  int block = kLeastBlockInputs;     // inputs, 16 or 32
  int blocks = 0, panels = 0;
  bool has_half_scales = false;
  const uint8_t* weights = nullptr;  // [panels, blocks, block * bits / 32, kPanel, 4]
  const void* scales = nullptr;      // uint16_t or float [panels, blocks, kPanel]
  const float* bias = nullptr;
};

// Quantised rows by groups of kGroupRows, the last of which may have fewer: quantised values [groups, blocks,
// rows of the group, block] of -127 to 127, and [groups, blocks, rows of the group] their scales and what the zero
// of the weights adds to a block's sum, negated.
struct QuantisedBlocks {
  int rows;
  const int8_t* values;
  const float* scales;
  const int32_t* offsets;
};

// Where one of them is written.
struct QuantisedRow {
  int8_t* values;
  float* scales;
  int32_t* offsets;
  int block;   // inputs
  int stride;  // blocks from one of this row to the next one
  int zero;    // of the weights
};

constexpr int kMostQueries = 4;

// Up to kMostQueries queries [queries, head_dim] over the keys and values [length, head_dim] that
// their heads share. Floats, or int8: then `key_scale` and `value_scale` [head_dim] are the
// scales of each channel, and there is one query.
template <class Element>
struct AttentionHead {
  const float* query;
  const Element* keys;
  const Element* values;  // null: only the weights are wanted, of one query
  const Element* next_keys = nullptr;  // of the head that follows, fetched into the cache meanwhile
  const Element* next_values = nullptr;
  const float* key_scale = nullptr;
  const float* value_scale = nullptr;
  const float* bias = nullptr;  // [length] of each query, added to the scores
  const float* sinks = nullptr;  // of each query: a score that has neither key nor value
  int queries = 1;
  int64_t bias_stride = 0;  // numbers from one query's to the next one's
  int length;
  float scale;
  float cap = 0;  // if not 0, a score becomes cap * tanh(score / cap)
  float* scores;  // room for `length` numbers of each query
  int64_t scores_stride = 0;  // at least `length`, rounded up to 16
  float* out;  // [queries, head_dim]; of weights [length]
};

// One query of a recurrent decoder over the encoder's states: keys [length, key_dim] and values
// [length, value_dim]. Scores are score_weight . tanh(query + key), or without it query . key.
struct StatesAttention {
  const float* query;
  const float* keys;
  const float* values;
  const float* score_weight = nullptr;
  int length, key_dim, value_dim;
  float scale;     // of scores
  float* weights;  // [length], of the softmax; room for `length` numbers, rounded up to 16
  float* context;  // [value_dim]
};

struct Kernels {
  const char* name;
  bool has_signed_values;  // quantised values are -127..127, otherwise 1..255
  int tile_channels;       // of an int8 linear layer, whose weights are stored together
  int inputs_multiple;     // of a row of quantised values and of packed weights
  int rows_multiple;       // quantised rows that must be readable
  int value_bytes;         // of an input: 2 where a row's magnitudes follow its quantised values

  // Quantise a row: quantised values [padded_inputs], their magnitudes likewise if `value_bytes` is 2, and the
  // largest magnitude of the row.
  void (*quantise)(const float* row, int inputs, int padded_inputs, uint8_t* quantised, float* absmax);

  // Compute the outputs of some tiles for quantised rows.
  void (*multiply)(const PackedLinear&, int first_tile, int last_tile, int rows, const uint8_t* quantised,
                   const float* absmaxes, float* outputs);

  // The same for layers in blocks.
  void (*quantise_blocks)(const float* row, int inputs, const QuantisedRow&);
  void (*multiply_blocks)(const PackedBlocks&, int first_panel, int last_panel, const QuantisedBlocks&, float* outputs);

  // Quantise each channel of vectors by its largest magnitude: quantised values [length, channels] of -127 to
  // 127, and the scales. stride: numbers from one vector to the next one.
  void (*quantise_channels)(const float* vectors, int64_t stride, int length, int channels, int8_t* quantised, float* scales);

  // Attend with heads of this size, at most kMostHeadDim.
  void (*attend)(const AttentionHead<float>&, int head_dim);
  void (*attend_int8)(const AttentionHead<int8_t>&, int head_dim);

  // Rotate the first `rotary_dim` numbers of a head by cos and sin [rotary_dim / 2] (RoPE).
  void (*rotate)(const float* head, const float* cos, const float* sin, int rotary_dim, int head_dim, float* out);

  // Find the `number` greatest scores of a row with their columns, and its sum of e**(score - largest),
  // unless `total` is null.
  void (*choose)(const float* scores, int columns, int number, float* best, int64_t* best_columns, float* total);

  // Recurrent cells, one row; see recurrent.cpp.
  void (*gru_cell)(const float* x, const float* u, const float* hidden, int dim, float* next);
  void (*gru_reset)(const float* x, const float* u, const float* hidden, int dim, float* reset);
  void (*gru_update)(const float* x, const float* u, const float* u_new, const float* hidden, int dim, float* next);
  void (*lstm_cell)(const float* x, const float* u, const float* memory, int dim, float* next, float* next_memory);
  void (*ssru_cell)(const float* gates, const float* memory, int dim, float* out, float* next_memory);
  void (*attend_to_states)(const StatesAttention&);
};

extern const Kernels kAvx2, kAvxVnni, kAvx512Vnni, kAmx;  // of x86-64
extern const Kernels kNeon, kNeonDotprod, kNeonI8mm;      // of aarch64

// Return the kernels of the widest instruction set of this processor, or of a narrower one that the
// environment variable ATTENDANT_KERNELS names; null if the processor has none of them.
const Kernels* kernels_of_processor();
