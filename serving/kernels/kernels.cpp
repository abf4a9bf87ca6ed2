// The kernels of one instruction set; compiled once for each, with KERNELS as the table's name.
#include "kernels.h"

#include <cmath>

#include "attention_kernels.h"
#include "block_kernels.h"
#include "choice_kernels.h"
#include "long_attention_kernels.h"
#include "recurrent_kernels.h"
#include "vectors.h"

namespace {

constexpr float kUnitScale = 1.0f / 127;  // the scale of a row whose absmax is 1
constexpr int kValueBytes = kHasMagnitudes ? 2 : 1;

// Quantised values are those of the graph's: round((x / absmax) / kUnitScale), halves to even. A multiplication finds the
// same, unless the result is near a half.
void quantise(const float* row, int inputs, int padded_inputs, uint8_t* quantised, float* absmax_out) {
  Floats largest = zeros();
  for (int i = 0; i < inputs; i += kLanes) largest = max_magnitude(largest, load_first(row + i, inputs - i));
  const float absmax = max_magnitude_of(largest);
  *absmax_out = nan_if_infinite(absmax);
  const Floats absmaxes = all(absmax), unit_scale = all(kUnitScale), factor = all(127 / absmax), near_half = all(0.5f - 1e-4f);
  for (int i = 0; i < inputs; i += kLanes) {
    const Floats x = load_first(row + i, inputs - i), scaled = mul(x, factor);
    Integers rounded = to_integers(scaled);
    if (__builtin_expect(any_not_less(absolute(sub(scaled, to_floats(rounded))), near_half), 0)) {
      const Floats exact = div(div(x, absmaxes), unit_scale);
      // A row of zeros gives NaN, and so does one with NaN or infinity: any value will do.
      rounded = to_integers(min(max(exact, all(-128)), all(127)));
    }
    store_quantised(quantised + i, rounded, inputs - i);
  }
  for (int i = inputs; i < padded_inputs; i++) quantised[i] = kSignedValues ? 0 : 128;
  for (int i = 0; kValueBytes == 2 && i < padded_inputs; i++) {
    quantised[padded_inputs + i] = uint8_t(int8_t(quantised[i]) < 0 ? -quantised[i] : quantised[i]);
  }
}

void quantise_channels(const float* vectors, int64_t stride, int length, int channels, int8_t* quantised, float* scales) {
  const Floats near_half = all(0.5f - 1e-4f), unit_scale = all(kUnitScale);
  for (int c = 0; c < channels; c += kLanes) {
    const int left = channels - c;
    Floats largest = zeros();
    for (int j = 0; j < length; j++) largest = max_magnitude(largest, load_first(vectors + j * stride + c, left));
    store_first(scales + c, add(mul(largest, unit_scale), sub(largest, largest)), left);  // NaN if infinite
    const Floats factors = div(all(127), max(largest, all(1e-30f)));  // of zeros: the quantised values are zeros
    for (int j = 0; j < length; j++) {
      const Floats x = load_first(vectors + j * stride + c, left), scaled = mul(x, factors);
      Integers rounded = to_integers(scaled);
      if (__builtin_expect(any_not_less(absolute(sub(scaled, to_floats(rounded))), near_half), 0)) {
        const Floats exact = div(div(x, largest), unit_scale);
        rounded = to_integers(min(max(exact, all(-127)), all(127)));
      }
      store_bytes(quantised + int64_t(j) * channels + c, rounded, left);
    }
  }
}

// Rounded as the graph's operators do it: to float, times scale, times absmax, plus bias.
INLINE void apply_epilogue(const PackedLinear& layer, int channel, Integers sum, float absmax, float* out) {
  const int left = layer.outputs - channel;
  Floats y = mul(mul(to_floats(sum), load(layer.scales + channel)), all(absmax));
  if (layer.bias != nullptr) y = add(y, load(layer.bias + channel));
  store_first(out + channel, y, left);
}

INLINE Integers all_of(const uint8_t* four) {
  int32_t bytes;
  std::memcpy(&bytes, four, 4);
  return all_integers(bytes);
}

constexpr int kVectors = kLanes == 16 ? 4 : 2;  // of a tile's channels, whose sums fit the registers
constexpr int kTile = kVectors * kLanes;

constexpr int kTwoSteps = 2 * kTile * 4;  // bytes of weights

// Weights that a product fetches into the cache while it computes: `bytes` more from `start` on at each two steps.
struct Fetch {
  const int8_t* start;
  int bytes;
};

// Multiply `Rows` rows by the channels of a tile. Few rows have two sums each, of even and of odd
// steps, to hide the latency of the instruction. MostFetched: bytes of `fetch`, at most.
template <int Rows, int MostFetched>
void multiply_tile(const PackedLinear& layer, int tile, const uint8_t* quantised, const float* absmaxes, Fetch fetch,
                   float* out) {
  constexpr int kSums = Rows <= 2 ? 2 : 1;
  const int channel = tile * kTile;
  const int8_t* weights = layer.weights + size_t(channel) * layer.padded_inputs;
  const size_t stride = size_t(layer.padded_inputs) * kValueBytes;
  Integers sums[kSums][Rows][kVectors];
  for (int v = 0; v < kVectors; v++) {
    for (int r = 0; r < Rows; r++) sums[kSums - 1][r][v] = no_integers();
    for (int r = 0; r < Rows; r++) sums[0][r][v] = load_integers(layer.offsets + channel + v * kLanes);
  }
  for (int k = 0; k < layer.padded_inputs / 4; k += 2, fetch.start += fetch.bytes) {
    for (int line = 0; line < MostFetched; line += 64) __builtin_prefetch(fetch.start + line);
#pragma GCC unroll 2
    for (int step = 0; step < 2; step++) {
      Integers columns[kVectors];
      for (int v = 0; v < kVectors; v++) columns[v] = load_bytes(weights + v * kLanes * 4);
      weights += kTile * 4;
#pragma GCC unroll 8
      for (int r = 0; r < Rows; r++) {
        const uint8_t* const four = quantised + r * stride + 4 * (k + step);
        const Integers inputs = all_of(four), magnitudes = all_of(four + (kValueBytes - 1) * layer.padded_inputs);
        for (int v = 0; v < kVectors; v++) {
          Integers& sum = sums[kSums == 2 ? step : 0][r][v];
          sum = dot4(sum, inputs, magnitudes, columns[v]);
        }
      }
    }
  }
  for (int r = 0; r < Rows; r++) {
    for (int v = 0; v < kVectors && channel + v * kLanes < layer.outputs; v++) {
      Integers sum = sums[0][r][v];
      if (kSums == 2) sum = plus(sum, sums[1][r][v]);
      apply_epilogue(layer, channel + v * kLanes, sum, absmaxes[r], out + size_t(r) * layer.outputs);
    }
  }
}

using MultiplyTile = void (*)(const PackedLinear&, int, const uint8_t*, const float*, Fetch, float*);
template <int MostFetched>
constexpr MultiplyTile kMultiplyTile[] = {multiply_tile<1, MostFetched>, multiply_tile<2, MostFetched>,
                                          multiply_tile<3, MostFetched>, multiply_tile<4, MostFetched>};
constexpr int kMostRows = 4;  // at once; six need more registers and are slower

#if defined(__AMX_INT8__)

// Intel's Advanced Matrix Extensions: 16 rows by 16 channels by 64 inputs in one instruction. Tiles
// 0 to 3 are the sums of a tile's channels, 4 the quantised rows, and 5 and 6 in turns the weights.
constexpr int kAmxRows = 16, kAmxBytes = 64, kFewRows = 3;
constexpr int kRowsMultiple = kAmxRows, kInputsMultiple = kAmxBytes;

void multiply_with_amx(const PackedLinear& layer, int tile, int rows, const uint8_t* quantised, const float* absmaxes,
                    float* out) {
  const int8_t* weights = layer.weights + size_t(tile) * layer.padded_inputs * kTile;
  constexpr int kStride = kTile * 4;  // bytes from four inputs to the next four
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int k = 0; k < layer.padded_inputs; k += kAmxBytes, weights += kAmxRows * kStride) {
    _tile_loadd(4, quantised + k, layer.padded_inputs);
    _tile_loadd(5, weights, kStride);
    _tile_loadd(6, weights + 64, kStride);
    _tile_dpbusd(0, 4, 5);
    _tile_dpbusd(1, 4, 6);
    _tile_loadd(5, weights + 128, kStride);
    _tile_loadd(6, weights + 192, kStride);
    _tile_dpbusd(2, 4, 5);
    _tile_dpbusd(3, 4, 6);
  }
  alignas(64) int32_t sums[kAmxRows][kTile];
  _tile_stored(0, &sums[0][0], sizeof(sums[0]));
  _tile_stored(1, &sums[0][16], sizeof(sums[0]));
  _tile_stored(2, &sums[0][32], sizeof(sums[0]));
  _tile_stored(3, &sums[0][48], sizeof(sums[0]));
  for (int r = 0; r < rows; r++) {
    const size_t start = size_t(r) * layer.outputs;
    for (int c = 0; c < kTile && tile * kTile + c < layer.outputs; c += kLanes) {
      const int channel = tile * kTile + c;
      const Integers sum = plus(load_integers(&sums[r][c]), load_integers(layer.offsets + channel));
      apply_epilogue(layer, channel, sum, absmaxes[r], out + start);
    }
  }
}

void multiply_few_rows(const PackedLinear&, int, int, int64_t, const uint8_t*, const float*, float*);

void multiply(const PackedLinear& layer, int first_tile, int last_tile, int64_t rows, const uint8_t* quantised,
              const float* absmaxes, float* outputs) {
  if (rows <= kFewRows) {
    return multiply_few_rows(layer, first_tile, last_tile, rows, quantised, absmaxes, outputs);
  }
  configure_amx();
  for (int tile = first_tile; tile < last_tile; tile++) {
    for (int64_t row = 0; row < rows; row += kAmxRows) {
      const size_t start = size_t(row) * layer.outputs;
      const int num_rows = rows - row < kAmxRows ? int(rows - row) : kAmxRows;
      multiply_with_amx(layer, tile, num_rows, quantised + size_t(row) * layer.padded_inputs, absmaxes + row, outputs + start);
    }
  }
  _tile_release();
}

#define MULTIPLY_ROWS multiply_few_rows
#else
#define MULTIPLY_ROWS multiply
constexpr int kRowsMultiple = 1, kInputsMultiple = 8;
#endif

// A tile's weights stay in the cache while all rows pass, in equal groups of at most kMostRows. The first groups
// fetch the next tile's weights meanwhile, so that memory and processor work at the same time.
void MULTIPLY_ROWS(const PackedLinear& layer, int first_tile, int last_tile, int64_t rows, const uint8_t* quantised,
                   const float* absmaxes, float* outputs) {
  constexpr int64_t kFetchingGroups = 8;
  const int64_t groups = (rows + kMostRows - 1) / kMostRows, fetching = groups < kFetchingGroups ? groups : kFetchingGroups;
  const int64_t tile_bytes = int64_t(layer.padded_inputs) * kTile;
  for (int tile = first_tile; tile < last_tile; tile++) {
    const int8_t *const weights = layer.weights + tile * tile_bytes, *const next = weights + tile_bytes;
    int64_t row = 0;
    for (int64_t group = 0; group < groups; group++) {
      const int64_t left = groups - group, num_rows = (rows - row + left - 1) / left;
      Fetch fetch{weights, 0};
      const MultiplyTile* multiply_rows = kMultiplyTile<0>;
      if (group == 0 && (groups == 1 || tile == first_tile)) {
        fetch = {weights + kAhead, kTwoSteps};
        multiply_rows = kMultiplyTile<kTwoSteps>;
      } else if (group < fetching && tile + 1 < last_tile) {
        fetch = {next + group * tile_bytes / fetching, int(kTwoSteps / fetching)};
        multiply_rows = kMultiplyTile<kTwoSteps / 2>;
      }
      multiply_rows[num_rows - 1](layer, tile, quantised + size_t(row) * layer.padded_inputs * kValueBytes, absmaxes + row,
                                  fetch, outputs + size_t(row) * layer.outputs);
      row += num_rows;
    }
  }
}

template <class Element>
constexpr AttentionKernels<Element> kAttention{attend<Element>, attend_to_blocks<Element>, merge_blocks<Element>,
                                               write_weights<Element>};

}  // namespace

extern const Kernels KERNELS{
    KERNELS_NAME,      kSignedValues,    kTile,              kInputsMultiple, kRowsMultiple,    kValueBytes,
    quantise,          multiply,         quantise_blocks,    multiply_blocks, quantise_channels, kAttention<float>,
    kAttention<Half>,  kAttention<int8_t>, {packed_bytes, pack_head, attend_long}, round_to_halves,  rotate,          choose,           gru_cell,
    gru_reset,         gru_update,       lstm_cell,          ssru_cell,       attend_to_states,
};
