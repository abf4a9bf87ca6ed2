// Base of the operators: typed access to inputs, outputs, attributes and threads.
//
// An operator is a class with `create`, `compute`, a name and the types of its inputs and outputs,
// made known to ONNX Runtime by `register_operator`. Errors are thrown as `Error` and become a
// status of ONNX Runtime, which the caller sees as an exception of Python.
#pragma once

#include <cstring>
#include <exception>
#include <initializer_list>
#include <vector>

#include "abi.h"

struct Error {
  const char* text;
};

inline void require(bool holds, const char* text) {
  if (!holds) throw Error{text};
}

extern const OrtApi* g_api;  // set once, when the library is registered

template <class Result = OrtStatus*, class... Arguments>
Result call(Entry entry, Arguments... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(g_api->entry[size_t(entry)])(arguments...);
}

// Release a status, and return whether it is an error.
inline bool failed(OrtStatus* status) {
  if (status != nullptr) call<void>(Entry::ReleaseStatus, status);
  return status != nullptr;
}

using Shape = std::vector<int64_t>;

inline int64_t count(const Shape& shape, size_t first = 0, size_t last = SIZE_MAX) {
  int64_t product = 1;
  for (size_t i = first; i < shape.size() && i < last; i++) product *= shape[i];
  return product;
}

// A tensor on the host; `value` is null for an optional input that is not given.
class Tensor {
 public:
  explicit Tensor(const OrtValue* value) : value_(const_cast<OrtValue*>(value)) {}

  explicit operator bool() const { return value_ != nullptr; }

  template <class T>
  T* data() const {
    void* pointer = nullptr;
    if (value_ != nullptr) require(!failed(call(Entry::GetTensorMutableData, value_, &pointer)), "no tensor");
    return static_cast<T*>(pointer);
  }

  Shape shape() const {
    OrtShape* info = nullptr;
    require(!failed(call(Entry::GetTensorTypeAndShape, static_cast<const OrtValue*>(value_), &info)), "no shape");
    size_t rank = 0;
    call(Entry::GetDimensionsCount, static_cast<const OrtShape*>(info), &rank);
    Shape shape(rank);
    call(Entry::GetDimensions, static_cast<const OrtShape*>(info), shape.data(), rank);
    call<void>(Entry::ReleaseTensorTypeAndShapeInfo, info);
    return shape;
  }

 private:
  OrtValue* value_;
};

// A node of a graph, when its kernel is created.
class Info {
 public:
  explicit Info(const OrtKernelInfo* info) : info_(info) {}

  // Return an input that is an initializer; a null tensor if it is not given or computed.
  Tensor constant(size_t index) const {
    int is_constant = 0;
    const OrtValue* value = nullptr;
    if (failed(call(Entry::KernelInfoGetConstantInput_tensor, info_, index, &is_constant, &value))) value = nullptr;
    return Tensor(is_constant ? value : nullptr);
  }

  int64_t integer(const char* name, int64_t otherwise) const {
    int64_t value = otherwise;
    return failed(call(Entry::KernelInfoGetAttribute_int64, info_, name, &value)) ? otherwise : value;
  }

  float number(const char* name, float otherwise) const {
    float value = otherwise;
    return failed(call(Entry::KernelInfoGetAttribute_float, info_, name, &value)) ? otherwise : value;
  }

 private:
  const OrtKernelInfo* info_;
};

// One run of a node.
class Context {
 public:
  explicit Context(OrtKernelContext* context) : context_(context) {}

  Tensor input(size_t index) const {
    size_t number = 0;
    call(Entry::KernelContext_GetInputCount, static_cast<const OrtKernelContext*>(context_), &number);
    const OrtValue* value = nullptr;
    if (index < number) {
      require(!failed(call(Entry::KernelContext_GetInput, static_cast<const OrtKernelContext*>(context_), index, &value)),
              "no input");
    }
    return Tensor(value);
  }

  // Allocate an output.
  Tensor output(size_t index, const Shape& shape) const {
    OrtValue* value = nullptr;
    require(!failed(call(Entry::KernelContext_GetOutput, context_, index, shape.data(), shape.size(), &value)),
            "an output cannot be allocated");
    return Tensor(value);
  }

  // Call work(0), ..., work(number - 1) on the threads of the session.
  template <class Work>
  void parallel(size_t number, const Work& work) const {
    if (number == 1) return work(size_t(0));
    void (*run)(void*, size_t) = [](void* pointer, size_t index) { (*static_cast<const Work*>(pointer))(index); };
    require(!failed(call(Entry::KernelContext_ParallelFor, static_cast<const OrtKernelContext*>(context_), run, number,
                         size_t(0), const_cast<void*>(static_cast<const void*>(&work)))),
            "no threads");
  }

 private:
  OrtKernelContext* context_;
};

// Run a function that may throw; return the error as a status, else null.
template <class Work>
OrtStatus* as_status(const Work& work) {
  constexpr int kInvalidArgument = 2;
  try {
    work();
    return nullptr;
  } catch (const Error& error) {
    return call(Entry::CreateStatus, kInvalidArgument, error.text);
  } catch (const std::exception& error) {
    return call(Entry::CreateStatus, kInvalidArgument, error.what());
  }
}

struct Port {
  ElementType type;
  Presence presence = kRequired;
};

// The description of an operator class for ONNX Runtime. A class has `kName`, `kInputs`, `kOutputs`,
// a constructor from Info, and `void compute(const Context&) const`.
template <class Operator>
const OrtCustomOp* description() {
  static const OrtCustomOp op = [] {
    OrtCustomOp op{};
    op.version = kApiVersion;
    op.GetName = [](const OrtCustomOp*) { return Operator::kName; };
    op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return "CPUExecutionProvider"; };
    op.GetInputTypeCount = [](const OrtCustomOp*) { return std::size(Operator::kInputs); };
    op.GetInputType = [](const OrtCustomOp*, size_t i) { return Operator::kInputs[i].type; };
    op.GetInputCharacteristic = [](const OrtCustomOp*, size_t i) { return Operator::kInputs[i].presence; };
    op.GetOutputTypeCount = [](const OrtCustomOp*) { return std::size(Operator::kOutputs); };
    op.GetOutputType = [](const OrtCustomOp*, size_t i) { return Operator::kOutputs[i].type; };
    op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t i) { return Operator::kOutputs[i].presence; };
    op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return 0; };
    op.GetVariadicInputMinArity = op.GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
    op.GetVariadicInputHomogeneity = op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
    op.GetStartVersion = [](const OrtCustomOp*) { return 1; };
    op.GetEndVersion = [](const OrtCustomOp*) { return INT32_MAX; };
    op.GetMayInplace = op.GetAliasMap = [](int**, int**) -> size_t { return 0; };
    op.ReleaseMayInplace = op.ReleaseAliasMap = [](int*, int*) {};
    op.CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo* info, void** kernel) {
      return as_status([&] { *kernel = new Operator(Info(info)); });
    };
    op.KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
      return as_status([&] { static_cast<const Operator*>(kernel)->compute(Context(context)); });
    };
    op.KernelDestroy = [](void* kernel) { delete static_cast<Operator*>(kernel); };
    return op;
  }();
  return &op;
}
