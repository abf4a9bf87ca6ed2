// The operator that finds the likeliest tokens; see choice.cpp.
#pragma once

#include "kernels.h"
#include "operator.h"

class TokenChoice {
 public:
  static constexpr const char* kName = "TokenChoice";
  static constexpr Port kInputs[] = {{kFloat}, {kBool, kOptional}};
  static constexpr Port kOutputs[] = {{kFloat}, {kInt64}, {kFloat}};

  explicit TokenChoice(const Info& info);
  void compute(const Context& context) const;

 private:
  const Kernels& kernels = *kernels_of_processor();
  int64_t number;
};
