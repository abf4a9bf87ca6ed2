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
// upper halves the next four. Scales of blocks of 32 are fp16 where that is exact.
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
  int64_t rows;
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

using Half = uint16_t;  // the bits of a float of 16 bits

constexpr int kMostLanes = 16;     // floats of the widest vectors
constexpr int kMostQueries = 128;  // that are given together
constexpr int kKeyBlock = 128;     // keys whose softmax is computed together

// A query over the keys of one head, and where its result goes.
struct AttentionQuery {
  const float* vector;                 // [head_dim]
  float* out;                          // [head_dim]
  int first, end;                      // the range of keys that it attends to
  const float* bias;                   // [at least end], added to the scores; null: none
  const float* sink;                   // a score that has neither key nor value; null: none
  const float* key_scale;              // [head_dim], of int8 keys and values: the scales of channels
  const float* value_scale;
};

// Queries over the keys and values [length, head_dim] that they share.
template <class Element>
struct AttentionHead {
  const Element* keys;
  const Element* values;
  const Element* next_keys = nullptr;  // of the head that follows, fetched into the cache meanwhile
  const Element* next_values = nullptr;
  const AttentionQuery* queries;
  int number;  // of queries, at most kMostQueries
  float scale;
  float cap = 0;   // if not 0, a score becomes cap * tanh(score / cap)
  float* scratch;  // attention_scratch(number, head_dim) floats, aligned to 64 bytes
};

// The floats of the states of one block of keys, and those of scratch memory; for any instruction set.
inline int64_t attention_states(int64_t queries, int64_t head_dim) {
  const auto round_up = [](int64_t number) { return (number + kMostLanes - 1) / kMostLanes * kMostLanes; };
  return round_up(queries) * (round_up(head_dim) + 2);
}
inline int64_t attention_scratch(int64_t queries, int64_t head_dim) {
  const int64_t of_queries = 3 * attention_states(queries, head_dim) + attention_states(1, head_dim);
  return of_queries + kKeyBlock * (kMostLanes + 2 * head_dim) + kMostLanes;
}

// Attention over one head of at most kMostHeadDim numbers.
template <class Element>
struct AttentionKernels {
  void (*attend)(const AttentionHead<Element>&, int head_dim);

  // The same in two steps: the states of a range of blocks of keys, of which there is memory for all that the queries
  // attend to; when all are there, the results.
  void (*attend_to_blocks)(const AttentionHead<Element>&, int head_dim, int first_block, int end_block, float* states);
  void (*merge_blocks)(const AttentionHead<Element>&, int head_dim, float* states);

  // Write the weights [end] of one query, which has no bias. scores: room for `end` floats and a vector.
  void (*write_weights)(const AttentionHead<Element>&, int head_dim, float* scores);
};

// Queries of a head over the packed keys and values of a long row; see long_attention_kernels.h.
struct LongAttention {
  const float* queries;  // [number, head_dim]
  float* out;            // [number, head_dim]
  int64_t query_stride, out_stride;  // numbers from one row to the next one
  int number, length, head_dim;
  float scale;
  const uint8_t* packed;
};

struct LongAttentionKernels {
  int64_t (*packed_bytes)(int length, int head_dim);

  // Pack keys and values [length, head_dim] into memory that is aligned to 64 bytes. stride: numbers from one vector to
  // the next one.
  void (*pack)(const float* keys, const float* values, int64_t stride, int length, int head_dim, uint8_t* packed);
  void (*attend)(const LongAttention&);
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
  void (*multiply)(const PackedLinear&, int first_tile, int last_tile, int64_t rows, const uint8_t* quantised,
                   const float* absmaxes, float* outputs);

  // The same for layers in blocks.
  void (*quantise_blocks)(const float* row, int inputs, const QuantisedRow&);
  void (*multiply_blocks)(const PackedBlocks&, int first_panel, int last_panel, const QuantisedBlocks&, float* outputs);

  // Quantise each channel of vectors by its largest magnitude: quantised values [length, channels] of -127 to
  // 127, and the scales. stride: numbers from one vector to the next one.
  void (*quantise_channels)(const float* vectors, int64_t stride, int length, int channels, int8_t* quantised, float* scales);

  // Attention over keys and values in floats, in fp16 and in int8.
  AttentionKernels<float> attention;
  AttentionKernels<Half> fp16_attention;
  AttentionKernels<int8_t> int8_attention;
  LongAttentionKernels long_attention;

  // Round numbers to fp16.
  void (*round_to_halves)(const float* numbers, int64_t count, Half* halves);

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
extern const Kernels kNeon, kNeonDotprod;                 // of aarch64

// Return the kernels of the widest instruction set of this processor, or of a narrower one that the
// environment variable ATTENDANT_KERNELS names; null if the processor has none of them.
const Kernels* kernels_of_processor();
