// The operators of encoders over packed tokens; see encoder.cpp.
#pragma once

#include "attention.h"

class EncoderAttention {
 public:
  static constexpr const char* kName = "EncoderAttention";
  static constexpr Port kInputs[] = {{kFloat}, {kInt32}, {kInt32}, {kInt64}, {kFloat, kOptional}};
  static constexpr Port kOutputs[] = {{kFloat}};

  explicit EncoderAttention(const Info& info) : options(info) {}
  void compute(const Context& context) const;

 private:
  const Kernels& kernels = *kernels_of_processor();
  AttentionOptions options;
};

class QuantizeMemory {
 public:
  static constexpr const char* kName = "QuantizeMemory";
  static constexpr Port kInputs[] = {{kFloat}, {kInt32}, {kInt32}};
  static constexpr Port kOutputs[] = {{kInt8}, {kInt8}, {kFloat}, {kFloat}};

  explicit QuantizeMemory(const Info& info);
  void compute(const Context& context) const;

 private:
  const Kernels& kernels = *kernels_of_processor();
  int64_t kv_heads;
};
