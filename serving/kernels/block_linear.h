// The operator BlockQuantizedLinear; see block_linear.cpp.
#pragma once

#include "kernels.h"
#include "memory.h"
#include "operator.h"
#include "packed_weights.h"

class BlockQuantizedLinear {
 public:
  static constexpr const char* kName = "BlockQuantizedLinear";
  static constexpr Port kInputs[] = {{kFloat}, {kUint8}, {kFloat}, {kFloat, kOptional}};
  static constexpr Port kOutputs[] = {{kFloat}};

  explicit BlockQuantizedLinear(const Info& info);
  void compute(const Context& context) const;

 private:
  struct SourceBlocks;

  void pack(const SourceBlocks&, const float* bias, Packed<PackedBlocks>& created) const;
  QuantisedBlocks quantise_rows(const Context& context, const float* x, int64_t rows) const;

  const Kernels& kernels = *kernels_of_processor();
  PackedPointer<PackedBlocks> packed;
  PackedBlocks layer;  // a copy of the shared one
};
