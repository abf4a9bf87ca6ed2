// BlockQuantizedLinear: a linear layer whose weights have a scale for each 16 inputs of a channel.
//
//   x: f32 [..., inputs]           weights: uint8 [outputs, blocks, 16], zero at 128, an initializer; or
//                                  of 4 bits [outputs, blocks, 8], zero at 8, the first in the lower half
//   scale: f32 [outputs, blocks], an initializer       bias: f32 [outputs], an initializer, optional
//   -> y: f32 [..., outputs]
//
// A row of x is quantised in blocks, too, each by its largest magnitude. Sums of a block are integers; those
// of blocks are added in their order, so that a row does not depend on others.
//
// Blocks are of 16 inputs, as MatMulNBits has them. Where neighbours have equal scales, as in weights that come from
// GGUF files, both sides have blocks of 32: half as many scales to read, and 1.5 times the speed with AMX. Inputs are
// rounded a little more coarsely then: errors of log-probabilities grew by an eighth (loadtest/LOG.md).
#include "block_linear.h"

#include <algorithm>

#include "memory.h"
#include "product_tasks.h"

namespace {

// Convert a number to fp16; return whether that is exact.
bool convert_to_half(float number, uint16_t& half) {
  constexpr int kDroppedBits = 23 - 10;  // of the mantissa
  constexpr int kLeastExponent = -14, kLargestExponent = 15, kBias = 15;
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  const uint32_t sign = bits >> 31 << 15, mantissa = bits & 0x7fffff;
  const int exponent = int(bits >> 23 & 0xff) - 127;
  half = uint16_t(sign);
  if (number == 0) return true;
  if (exponent > kLargestExponent || exponent < kLeastExponent - 10) return false;
  if (exponent >= kLeastExponent) {
    half = uint16_t(sign | uint32_t(exponent + kBias) << 10 | mantissa >> kDroppedBits);
    return mantissa % (1 << kDroppedBits) == 0;
  }
  const int shift = kDroppedBits + kLeastExponent - exponent;  // a subnormal number
  const uint32_t with_leading_one = mantissa | 0x800000;
  half = uint16_t(sign | with_leading_one >> shift);
  return with_leading_one % (1u << shift) == 0;
}

}  // namespace

// The weights and scales of an operator's inputs.
struct BlockQuantizedLinear::SourceBlocks {
  const uint8_t* weights;  // [outputs, blocks, 16 * bits / 8]
  const float* scales;     // [outputs, blocks]
  int outputs, blocks, bits;

  int weight(size_t block, int input) const {
    if (bits == 8) return weights[block * kLeastBlockInputs + input];
    return weights[block * kLeastBlockInputs / 2 + input / 2] >> 4 * (input % 2) & 15;
  }

  // Return the scale; 0 of a block of zeros, whose scale may be anything.
  float scale(size_t block) const {
    for (int k = 0; k < kLeastBlockInputs; k++) {
      if (weight(block, k) != 1 << (bits - 1)) return scales[block];
    }
    return 0;
  }

  bool has_half_scales() const {
    uint16_t half;
    for (size_t block = 0; block < size_t(outputs) * blocks; block++) {
      if (!convert_to_half(scales[block], half) && scale(block) != 0) return false;
    }
    return true;
  }

  // Return whether the scales of neighbouring blocks are equal.
  bool has_pairs() const {
    for (int n = 0; n < outputs; n++) {
      const size_t first = size_t(n) * blocks;
      for (int b = 0; b + 1 < blocks; b += 2) {
        const size_t block = first + b;
        if (scales[block] != scales[block + 1] && scale(block) != 0 && scale(block + 1) != 0) return false;
      }
    }
    return true;
  }
};

BlockQuantizedLinear::BlockQuantizedLinear(const Info& info) {
  const Tensor weights = info.constant(1), scale = info.constant(2), bias = info.constant(3);
  require(weights && scale, "BlockQuantizedLinear: weights and scale must be initializers");
  const Shape shape = weights.shape();
  layer.bits = int(info.integer("bits", 8));
  require(layer.bits == 8 || layer.bits == 4, "BlockQuantizedLinear: bits must be 8 or 4");
  require(shape.size() == 3 && shape[0] > 0 && shape[1] > 0 && shape[2] == kLeastBlockInputs * layer.bits / 8,
          "BlockQuantizedLinear: weights must be [outputs, blocks, 16 * bits / 8]");
  require(shape[0] <= INT32_MAX - kPanel && shape[1] <= INT32_MAX / kMostBlockInputs,
          "BlockQuantizedLinear: the weights are too large");
  require(scale.shape() == Shape{shape[0], shape[1]}, "BlockQuantizedLinear: scale must be [outputs, blocks]");
  require(!bias || bias.shape() == Shape{shape[0]}, "BlockQuantizedLinear: bias must be [outputs]");
  layer.inputs = int(info.integer("K", 0));
  require((layer.inputs + kLeastBlockInputs - 1) / kLeastBlockInputs == shape[1],
          "BlockQuantizedLinear: K does not fit the blocks");
  layer.outputs = int(shape[0]);
  layer.panels = (layer.outputs + kPanel - 1) / kPanel;
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
    pack({quantised, scales, layer.outputs, int(shape[1]), layer.bits}, biases, created);
  });
  layer = packed->layer;
}

void BlockQuantizedLinear::pack(const SourceBlocks& source, const float* bias, Packed<PackedBlocks>& created) const {
  PackedBlocks& layer = created.layer;
  Blocks& memory = created.memory;
  layer.block = source.has_pairs() ? kMostBlockInputs : kLeastBlockInputs;
  layer.has_half_scales = layer.block == kMostBlockInputs && source.has_half_scales();
  layer.blocks = (layer.inputs + layer.block - 1) / layer.block;
  const int halves = layer.block / kLeastBlockInputs, bytes = layer.block * layer.bits / 8;  // of a channel's block
  const size_t columns = size_t(layer.panels) * layer.blocks * kPanel;
  uint8_t* const weights = add_zeros<uint8_t>(memory, columns * bytes);
  uint16_t* const half_scales = layer.has_half_scales ? add_zeros<uint16_t>(memory, columns) : nullptr;
  float* const scales = layer.has_half_scales ? nullptr : add_zeros<float>(memory, columns);
  const int zero = kernels.has_signed_values && layer.bits == 8 ? 0x80 : 0;
  for (int n = 0; n < layer.outputs; n++) {
    for (int b = 0; b < source.blocks; b++) {
      const size_t from = size_t(n) * source.blocks + b, to = (size_t(n / kPanel) * layer.blocks + b / halves) * kPanel;
      const int channel = n % kPanel;
      const float block_scale = source.scale(from);
      uint8_t* const block = weights + to * bytes + channel * 4;
      if (block_scale != 0 && layer.has_half_scales) {
        convert_to_half(block_scale, half_scales[to + channel]);
      } else if (block_scale != 0) {
        scales[to + channel] = block_scale;
      }
      for (int k = 0; k < kLeastBlockInputs; k++) {
        const int input = b % halves * kLeastBlockInputs + k, value = source.weight(from, k);
        if (layer.bits == 8) {
          block[input / 4 * kPanel * 4 + input % 4] = uint8_t(value ^ zero);
        } else {
          block[input / 8 * kPanel * 4 + input % 4] |= uint8_t(value << 4 * (input / 4 % 2));
        }
      }
    }
  }
  layer.weights = weights;
  layer.scales = layer.has_half_scales ? static_cast<const void*>(half_scales) : scales;
  if (bias != nullptr) {
    float* const biases = add_zeros<float>(memory, size_t(layer.panels) * kPanel);
    std::copy_n(bias, layer.outputs, biases);
    layer.bias = biases;
  }
}

void BlockQuantizedLinear::compute(const Context& context) const {
  const Tensor x = context.input(0);
  Shape shape = x.shape();
  require(!shape.empty() && shape.back() == layer.inputs, "BlockQuantizedLinear: x must be [..., inputs]");
  shape.back() = layer.outputs;
  const int64_t rows = count(shape, 0, shape.size() - 1);
  float* const out = context.output(0, shape).data<float>();
  if (rows == 0) return;
  const QuantisedBlocks blocks = quantise_rows(context, x.data<float>(), rows);
  const size_t weight_bytes = size_t(layer.panels) * layer.blocks * layer.block * kPanel * layer.bits / 8;
  divide_product(context, rows, layer.panels, weight_bytes,
                 [&](int first_panel, int last_panel, int64_t first_row, int num_rows) {
                   const size_t first_block = size_t(first_row) * layer.blocks;
                   const QuantisedBlocks chunk{num_rows, blocks.values + first_block * layer.block,
                                               blocks.scales + first_block, blocks.offsets + first_block};
                   kernels.multiply_blocks(layer, first_panel, last_panel, chunk, out + first_row * layer.outputs);
                 });
}

// Quantise the rows into memory of this thread.
QuantisedBlocks BlockQuantizedLinear::quantise_rows(const Context& context, const float* x, int64_t rows) const {
  const size_t blocks = size_t(rows) * layer.blocks;
  // The last group may have fewer rows than kernels read: they drop the products of what lies behind it.
  const size_t readable = kGroupRows * kMostBlockInputs;
  uint8_t* const start = scratch(blocks * (layer.block + sizeof(float) + sizeof(int32_t)) + readable);
  auto* const values = reinterpret_cast<int8_t*>(start);
  auto* const scales = reinterpret_cast<float*>(start + blocks * layer.block);
  auto* const offsets = reinterpret_cast<int32_t*>(scales + blocks);
  const int zero = kernels.has_signed_values && layer.bits == 8 ? 0 : 1 << (layer.bits - 1);
  context.parallel(size_t(rows + kGroupRows - 1) / kGroupRows, [&](size_t group) {
    const int64_t first = int64_t(group) * kGroupRows;
    const int group_rows = int(std::min<int64_t>(kGroupRows, rows - first));
    for (int row = 0; row < group_rows; row++) {
      const size_t block = size_t(first) * layer.blocks + row;
      kernels.quantise_blocks(
          x + size_t(first + row) * layer.inputs, layer.inputs,
          {values + block * layer.block, scales + block, offsets + block, layer.block, group_rows, zero});
    }
  });
  return {rows, values, scales, offsets};
}
