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
  void pack(const uint8_t* quantised, const float* scale, const float* bias,
            Packed<PackedBlocks>& created) const;
  QuantisedBlocks quantise_rows(const float* x, int rows) const;

  const Kernels& kernels = *kernels_of_processor();
  PackedPointer<PackedBlocks> packed;
  PackedBlocks layer;  // a copy of the shared one
};
