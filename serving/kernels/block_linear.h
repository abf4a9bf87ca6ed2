// The operator BlockQuantizedLinear; see block_linear.cpp.
#pragma once

#include "kernels.h"
#include "memory.h"
#include "operator.h"

class BlockQuantizedLinear {
 public:
  static constexpr const char* kName = "BlockQuantizedLinear";
  static constexpr Port kInputs[] = {{kFloat}, {kUint8}, {kFloat}, {kFloat, kOptional}};
  static constexpr Port kOutputs[] = {{kFloat}};

  explicit BlockQuantizedLinear(const Info& info);
  void compute(const Context& context) const;

 private:
  void pack(const uint8_t* quantised, const float* scale, int blocks);
  QuantisedBlocks quantise_rows(const Context& context, const float* x, int rows) const;

  const Kernels& kernels = *kernels_of_processor();
  PackedBlocks layer;
  Blocks memory;
};
