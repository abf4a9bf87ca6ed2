// QuantizedLinear: a linear layer in row-wise int8, in one node.
//
//   x: f32 [..., inputs]          weight: int8 [inputs, outputs], an initializer
//   scale: f32 [outputs], an initializer       bias: f32 [outputs], an initializer, optional
//   -> y: f32 [..., outputs]
//
// The result has the same bits as the chain of operators that `export/graph/quantise.py` writes, and
// a row does not depend on others.
#include "linear.h"

#include <algorithm>

#include "memory.h"
#include "product_tasks.h"

namespace {

constexpr int64_t kMostInputs = 1 << 17;  // of products of up to 127 * 128, whose sum must fit 32 bits

int64_t round_up(int64_t number, int64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

}  // namespace

QuantizedLinear::QuantizedLinear(const Info& info) {
  const Tensor weight = info.constant(1), scale = info.constant(2), bias = info.constant(3);
  require(weight && scale, "QuantizedLinear: weight and scale must be initializers");
  const Shape shape = weight.shape();
  require(shape.size() == 2 && shape[0] > 0 && shape[1] > 0, "QuantizedLinear: weight must be [inputs, outputs]");
  require(shape[0] <= kMostInputs && shape[1] <= INT32_MAX - kernels.tile_channels, "QuantizedLinear: the weight is too large");
  require(scale.shape() == Shape{shape[1]}, "QuantizedLinear: scale must be [outputs]");
  require(!bias || bias.shape() == Shape{shape[1]}, "QuantizedLinear: bias must be [outputs]");
  const auto* const weights = weight.data<int8_t>();
  const auto* const scales = scale.data<float>();
  const float* const biases = bias ? bias.data<float>() : nullptr;
  WeightsKey key(kName);
  key.add(shape.data(), shape.size());
  key.add(weights, count(shape));
  key.add(scales, shape[1]);
  key.add(biases, shape[1]);
  packed = share_packed<PackedLinear>(key, [&](Packed<PackedLinear>& created) {
    created.layer.inputs = int(shape[0]);
    created.layer.outputs = int(shape[1]);
    pack(weights, scales, biases, created);
  });
  layer = packed->layer;
}

void QuantizedLinear::pack(const int8_t* weight, const float* scale, const float* bias,
                           Packed<PackedLinear>& created) const {
  PackedLinear& layer = created.layer;
  Blocks& memory = created.memory;
  layer.padded_inputs = int(round_up(layer.inputs, kernels.inputs_multiple));
  layer.tiles = (layer.outputs + kernels.tile_channels - 1) / kernels.tile_channels;
  const size_t tile_channels = kernels.tile_channels, channels = layer.tiles * tile_channels;
  int8_t* const weights = add_zeros<int8_t>(memory, channels * layer.padded_inputs);
  int32_t* const offsets = add_zeros<int32_t>(memory, channels);
  float* const scales = add_zeros<float>(memory, channels);
  for (int k = 0; k < layer.inputs; k++) {
    for (int n = 0; n < layer.outputs; n++) {
      const int8_t value = weight[size_t(k) * layer.outputs + n];
      const size_t tile = n / tile_channels, channel = n % tile_channels;
      weights[(tile * layer.padded_inputs + k / 4 * 4) * tile_channels + channel * 4 + k % 4] = value;
      if (!kernels.has_signed_values) offsets[n] -= 128 * value;
    }
  }
  for (int n = 0; n < layer.outputs; n++) scales[n] = (1.0f / 127) * scale[n];
  layer.weights = weights;
  layer.offsets = offsets;
  layer.scales = scales;
  if (bias != nullptr) {
    float* const biases = add_zeros<float>(memory, channels);
    std::copy(bias, bias + layer.outputs, biases);
    layer.bias = biases;
  }
}

void QuantizedLinear::compute(const Context& context) const {
  const Tensor x = context.input(0);
  Shape shape = x.shape();
  require(!shape.empty() && shape.back() == layer.inputs, "QuantizedLinear: x must be [..., inputs]");
  shape.back() = layer.outputs;
  const int64_t rows = count(shape, 0, shape.size() - 1);
  float* out = context.output(0, shape).data<float>();
  if (rows > 0) multiply(context, x.data<float>(), rows, out);
}

void QuantizedLinear::multiply(const Context& context, const float* x, int64_t rows, float* out) const {
  constexpr int64_t kQuantisedRows = 8;  // of a task, which takes some microseconds
  const size_t row_bytes = size_t(layer.padded_inputs) * kernels.value_bytes;
  const size_t bytes = size_t(round_up(rows, kernels.rows_multiple)) * row_bytes;
  uint8_t* const quantised = scratch(bytes + rows * sizeof(float));
  auto* const absmaxes = reinterpret_cast<float*>(quantised + bytes);
  context.parallel(size_t(rows + kQuantisedRows - 1) / kQuantisedRows, [&](size_t task) {
    const int64_t first = int64_t(task) * kQuantisedRows, last = std::min(rows, first + kQuantisedRows);
    for (int64_t row = first; row < last; row++) {
      kernels.quantise(x + row * layer.inputs, layer.inputs, layer.padded_inputs, quantised + row * row_bytes,
                       absmaxes + row);
    }
  });
  const size_t weight_bytes = size_t(layer.padded_inputs) * layer.tiles * kernels.tile_channels;
  divide_product(context, rows, layer.tiles, weight_bytes, [&](int first_tile, int last_tile, int64_t first_row, int num_rows) {
    kernels.multiply(layer, first_tile, last_tile, num_rows, quantised + first_row * row_bytes, absmaxes + first_row,
                     out + first_row * layer.outputs);
  });
}
