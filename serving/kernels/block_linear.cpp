// BlockQuantizedLinear: a linear layer whose weights have a scale for each 16 inputs of a channel.
//
//   x: f32 [..., inputs]           weights: uint8 [outputs, blocks, 16], zero at 128, an initializer; or
//                                  of 4 bits [outputs, blocks, 8], zero at 8, the first in the lower half
//   scale: f32 [outputs, blocks], an initializer       bias: f32 [outputs], an initializer, optional
//   -> y: f32 [..., outputs]
//
// Each block of a row of x is quantised by its largest magnitude, as MatMulNBits does it. Sums of a
// block are integers; those of blocks are added in their order, so that a row does not depend on
// others, and differs from MatMulNBits by the rounding of sums only.
#include "block_linear.h"

#include <algorithm>

#include "memory.h"

BlockQuantizedLinear::BlockQuantizedLinear(const Info& info) {
  const Tensor weights = info.constant(1), scale = info.constant(2), bias = info.constant(3);
  require(weights && scale, "BlockQuantizedLinear: weights and scale must be initializers");
  const Shape shape = weights.shape();
  layer.bits = int(info.integer("bits", 8));
  require(layer.bits == 8 || layer.bits == 4, "BlockQuantizedLinear: bits must be 8 or 4");
  require(shape.size() == 3 && shape[0] > 0 && shape[1] > 0 && shape[2] == kBlockInputs * layer.bits / 8,
          "BlockQuantizedLinear: weights must be [outputs, blocks, 16 * bits / 8]");
  require(scale.shape() == Shape{shape[0], shape[1]}, "BlockQuantizedLinear: scale must be [outputs, blocks]");
  require(!bias || bias.shape() == Shape{shape[0]}, "BlockQuantizedLinear: bias must be [outputs]");
  layer.inputs = int(info.integer("K", 0));
  require((layer.inputs + kBlockInputs - 1) / kBlockInputs == shape[1], "BlockQuantizedLinear: K does not fit the blocks");
  layer.outputs = int(shape[0]);
  layer.blocks = int(shape[1]);
  layer.tiles = (layer.outputs + kBlockTile - 1) / kBlockTile;
  const auto* const quantised = weights.data<uint8_t>();
  const auto* const scales = scale.data<float>();
  const float* const biases = bias ? bias.data<float>() : nullptr;
  WeightsKey key(kName);
  key.add(shape.data(), shape.size());
  key.add(&layer.inputs, 1);
  key.add(quantised, count(shape));
  key.add(scales, shape[0] * shape[1]);
  key.add(biases, shape[0]);
  packed = share_packed<PackedBlocks>(key, [&](Packed<PackedBlocks>& created) {
    created.layer = layer;
    pack(quantised, scales, biases, created);
  });
  layer = packed->layer;
}

void BlockQuantizedLinear::pack(const uint8_t* quantised, const float* scale, const float* bias,
                                Packed<PackedBlocks>& created) const {
  PackedBlocks& layer = created.layer;
  Blocks& memory = created.memory;
  const size_t columns = size_t(layer.tiles) * layer.blocks * kBlockTile;
  const int bytes = kBlockInputs * layer.bits / 8;
  uint8_t* const weights = add_zeros<uint8_t>(memory, columns * bytes);
  float* const scales = add_zeros<float>(memory, columns);
  for (int n = 0; n < layer.outputs; n++) {
    for (int b = 0; b < layer.blocks; b++) {
      const size_t from = size_t(n) * layer.blocks + b, to = (size_t(n / kBlockTile) * layer.blocks + b) * kBlockTile;
      const int channel = n % kBlockTile;
      scales[to + channel] = scale[from];
      uint8_t* const block = weights + to * bytes + channel * 4;
      for (int k = 0; k < kBlockInputs; k++) {
        if (layer.bits == 8) {
          const uint8_t value = quantised[from * bytes + k];
          block[k / 4 * kBlockTile * 4 + k % 4] = kernels.has_signed_values ? value ^ 0x80 : value;
        } else {
          const uint8_t value = quantised[from * bytes + k / 2] >> 4 * (k % 2) & 15;
          block[k / 8 * kBlockTile * 4 + k % 4] |= uint8_t(value << 4 * (k / 4 % 2));
        }
      }
    }
  }
  layer.weights = weights;
  layer.scales = scales;
  if (bias != nullptr) {
    float* const biases = add_zeros<float>(memory, size_t(layer.tiles) * kBlockTile);
    std::copy_n(bias, layer.outputs, biases);
    layer.bias = biases;
  }
}

void BlockQuantizedLinear::compute(const Context& context) const {
  const Tensor x = context.input(0);
  Shape shape = x.shape();
  require(!shape.empty() && shape.back() == layer.inputs, "BlockQuantizedLinear: x must be [..., inputs]");
  shape.back() = layer.outputs;
  const int rows = int(count(shape, 0, shape.size() - 1));
  float* const out = context.output(0, shape).data<float>();
  if (rows == 0) return;
  // Threads divide the tiles: the weights are what takes time, and all rows share them.
  const QuantisedBlocks blocks = quantise_rows(x.data<float>(), rows);
  constexpr int kTasks = 8;  // as in linear.cpp
  const int tasks = std::min(layer.tiles, kTasks);
  context.parallel(size_t(tasks), [&](size_t task) {
    const int first = int(task) * layer.tiles / tasks, last = int(task + 1) * layer.tiles / tasks;
    kernels.multiply_blocks(layer, first, last, rows, blocks, out);
  });
}

// Quantise the rows into memory of this thread.
QuantisedBlocks BlockQuantizedLinear::quantise_rows(const float* x, int rows) const {
  const size_t blocks = size_t(rows) * layer.blocks;
  uint8_t* const start = scratch(blocks * (kBlockInputs + sizeof(float) + sizeof(int32_t)));
  auto* const quantised = reinterpret_cast<int8_t*>(start);
  auto* const scales = reinterpret_cast<float*>(start + blocks * kBlockInputs);
  auto* const offsets = reinterpret_cast<int32_t*>(scales + blocks);
  for (int row = 0; row < rows; row++) {
    const size_t first = size_t(row) * layer.blocks;
    kernels.quantise_blocks(x + size_t(row) * layer.inputs, layer.inputs, 1 << (layer.bits - 1),
                            quantised + first * kBlockInputs, scales + first, offsets + first);
  }
  return {quantised, scales, offsets};
}
