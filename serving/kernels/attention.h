// The operators of decoder attention; see attention.cpp.
#pragma once

#include "kernels.h"
#include "operator.h"

struct AttentionOptions {
  explicit AttentionOptions(const Info& info);

  int64_t heads, kv_heads;
  float scale;
  int64_t window;  // positions that are attended to, the token's own included
  float cap;       // of scores; 0: none
};

template <class Element>
class SelfAttentionOver {
 public:
  explicit SelfAttentionOver(const Info& info) : options(info) {}
  void compute(const Context& context) const;

 private:
  const Kernels& kernels = *kernels_of_processor();
  AttentionOptions options;
};

struct SelfAttention : SelfAttentionOver<float> {
  static constexpr const char* kName = "SelfAttention";
  static constexpr Port kInputs[] = {{kFloat},
                                     {kFloat},
                                     {kFloat},
                                     {kInt32},
                                     {kInt32, kOptional},
                                     {kFloat, kOptional},
                                     {kFloat, kOptional},
                                     {kFloat, kOptional},
                                     {kFloat, kOptional}};
  static constexpr Port kOutputs[] = {{kFloat}, {kFloat}, {kFloat}};

  using SelfAttentionOver::SelfAttentionOver;
};

struct Fp16SelfAttention : SelfAttentionOver<Half> {
  static constexpr const char* kName = "Fp16SelfAttention";
  static constexpr Port kInputs[] = {{kFloat},
                                     {kFloat16},
                                     {kFloat16},
                                     {kInt32},
                                     {kInt32, kOptional},
                                     {kFloat, kOptional},
                                     {kFloat, kOptional},
                                     {kFloat, kOptional},
                                     {kFloat, kOptional}};
  static constexpr Port kOutputs[] = {{kFloat}, {kFloat16}, {kFloat16}};

  using SelfAttentionOver::SelfAttentionOver;
};

template <class Element>
class SourceAttention {
 public:
  explicit SourceAttention(const Info& info) : options(info) {}

 protected:
  void attend(const Context& context, Tensor key_scale, Tensor value_scale) const;

  const Kernels& kernels = *kernels_of_processor();
  AttentionOptions options;
};

class CrossAttention : SourceAttention<float> {
 public:
  static constexpr const char* kName = "CrossAttention";
  static constexpr Port kInputs[] = {{kFloat}, {kFloat}, {kFloat}, {kInt32}, {kInt64, kOptional}};
  static constexpr Port kOutputs[] = {{kFloat}};

  using SourceAttention::SourceAttention;
  void compute(const Context& context) const;
};

// The weights of cross-attention alone, which few steps need: those that multiply values do not write them.
template <class Element>
class SourceWeights {
 public:
  explicit SourceWeights(const Info& info) : options(info) {}
  void compute(const Context& context) const;

 private:
  const Kernels& kernels = *kernels_of_processor();
  AttentionOptions options;
};

struct CrossAttentionWeights : SourceWeights<float> {
  static constexpr const char* kName = "CrossAttentionWeights";
  static constexpr Port kInputs[] = {{kFloat}, {kFloat}, {kInt32}};
  static constexpr Port kOutputs[] = {{kFloat}};

  using SourceWeights::SourceWeights;
};

struct Int8CrossAttentionWeights : SourceWeights<int8_t> {
  static constexpr const char* kName = "Int8CrossAttentionWeights";
  static constexpr Port kInputs[] = {{kFloat}, {kInt8}, {kInt32}};
  static constexpr Port kOutputs[] = {{kFloat}};

  using SourceWeights::SourceWeights;
};

class Int8CrossAttention : SourceAttention<int8_t> {
 public:
  static constexpr const char* kName = "Int8CrossAttention";
  static constexpr Port kInputs[] = {{kFloat}, {kInt8}, {kInt8}, {kInt32}, {kInt64}, {kFloat}, {kFloat}};
  static constexpr Port kOutputs[] = {{kFloat}, {kInt8}, {kInt8}};

  using SourceAttention::SourceAttention;
  void compute(const Context& context) const;
};
