// The operators of recurrent decoders; see recurrent.cpp.
#pragma once

#include "kernels.h"
#include "operator.h"

// A cell without attributes.
class RecurrentOperator {
 public:
  explicit RecurrentOperator(const Info&) {}

 protected:
  const Kernels& kernels = *kernels_of_processor();
};

class GruCell : RecurrentOperator {
 public:
  static constexpr const char* kName = "GruCell";
  static constexpr Port kInputs[] = {{kFloat}, {kFloat}, {kFloat}};
  static constexpr Port kOutputs[] = {{kFloat}};

  using RecurrentOperator::RecurrentOperator;
  void compute(const Context& context) const;
};

class GruReset : RecurrentOperator {
 public:
  static constexpr const char* kName = "GruReset";
  static constexpr Port kInputs[] = {{kFloat}, {kFloat}, {kFloat}};
  static constexpr Port kOutputs[] = {{kFloat}};

  using RecurrentOperator::RecurrentOperator;
  void compute(const Context& context) const;
};

class GruUpdate : RecurrentOperator {
 public:
  static constexpr const char* kName = "GruUpdate";
  static constexpr Port kInputs[] = {{kFloat}, {kFloat}, {kFloat}, {kFloat}};
  static constexpr Port kOutputs[] = {{kFloat}};

  using RecurrentOperator::RecurrentOperator;
  void compute(const Context& context) const;
};

class LstmCell : RecurrentOperator {
 public:
  static constexpr const char* kName = "LstmCell";
  static constexpr Port kInputs[] = {{kFloat}, {kFloat}, {kFloat}};
  static constexpr Port kOutputs[] = {{kFloat}, {kFloat}};

  using RecurrentOperator::RecurrentOperator;
  void compute(const Context& context) const;
};

class SsruCell : RecurrentOperator {
 public:
  static constexpr const char* kName = "SsruCell";
  static constexpr Port kInputs[] = {{kFloat}, {kFloat}};
  static constexpr Port kOutputs[] = {{kFloat}, {kFloat}};

  using RecurrentOperator::RecurrentOperator;
  void compute(const Context& context) const;
};

class StatesAttentionOperator {
 public:
  explicit StatesAttentionOperator(const Info& info) : scale(info.number("scale", 1)) {}

 protected:
  void attend(const Context& context, Tensor score_weight) const;

  const Kernels& kernels = *kernels_of_processor();
  float scale;
};

class AdditiveAttention : StatesAttentionOperator {
 public:
  static constexpr const char* kName = "AdditiveAttention";
  static constexpr Port kInputs[] = {{kFloat}, {kFloat}, {kFloat}, {kInt32}, {kFloat}};
  static constexpr Port kOutputs[] = {{kFloat}, {kFloat}};

  using StatesAttentionOperator::StatesAttentionOperator;
  void compute(const Context& context) const { attend(context, context.input(4)); }
};

class DotAttention : StatesAttentionOperator {
 public:
  static constexpr const char* kName = "DotAttention";
  static constexpr Port kInputs[] = {{kFloat}, {kFloat}, {kFloat}, {kInt32}};
  static constexpr Port kOutputs[] = {{kFloat}, {kFloat}};

  using StatesAttentionOperator::StatesAttentionOperator;
  void compute(const Context& context) const { attend(context, Tensor(nullptr)); }
};
