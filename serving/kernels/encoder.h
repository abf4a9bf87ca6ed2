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
  // Attend with all tokens of a row, qkv [length, (heads + 2 kv_heads) * head_dim], in products of matrices.
  void attend_in_long_row(const Context& context, const float* qkv, int64_t length, int64_t head_dim, float* output) const;

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
