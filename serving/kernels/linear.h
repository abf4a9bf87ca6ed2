// The operator QuantizedLinear; see linear.cpp.
#pragma once

#include "kernels.h"
#include "memory.h"
#include "operator.h"
#include "packed_weights.h"

class QuantizedLinear {
 public:
  static constexpr const char* kName = "QuantizedLinear";
  static constexpr Port kInputs[] = {{kFloat}, {kInt8}, {kFloat}, {kFloat, kOptional}};
  static constexpr Port kOutputs[] = {{kFloat}};

  explicit QuantizedLinear(const Info& info);
  void compute(const Context& context) const;

 protected:
  void pack(const int8_t* weight, const float* scale, const float* bias,
            Packed<PackedLinear>& created) const;
  void multiply(const Context& context, const float* x, int64_t rows, float* out) const;

  const Kernels& kernels = *kernels_of_processor();
  PackedPointer<PackedLinear> packed;
  PackedLinear layer;  // a copy of the shared one
};
