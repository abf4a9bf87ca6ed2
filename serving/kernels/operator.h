// Base of the operators: typed access to inputs, outputs, attributes and threads.
//
// An operator is a class with `create`, `compute`, a name and the types of its inputs and outputs,
// which `description` describes to ONNX Runtime. Errors are thrown as `Error` and become a status of
// ONNX Runtime, which the caller sees as an exception of Python.
#pragma once

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "onnxruntime/onnxruntime_c_api.h"

extern const OrtApi* g_api;  // set once, when the library is registered

// An error of an operator: a status of ONNX Runtime.
class Error {
 public:
  explicit Error(OrtStatus* status) : status_(status) {}
  explicit Error(const char* text) : status_(g_api->CreateStatus(ORT_INVALID_ARGUMENT, text)) {}
  Error(Error&& other) noexcept : status_(other.release()) {}
  ~Error() {
    if (status_ != nullptr) g_api->ReleaseStatus(status_);
  }

  // Give up the status to a caller, who has to release it.
  OrtStatus* release() noexcept { return std::exchange(status_, nullptr); }

 private:
  OrtStatus* status_;
};

inline void require(bool holds, const char* text) {
  if (!holds) throw Error(text);
}

// Throw the status of a call of ONNX Runtime's interface if it is an error.
inline void check(OrtStatus* status) {
  if (status != nullptr) throw Error(status);
}

// Run a function that may throw; return the error as a status, else null.
template <class Work>
OrtStatus* as_status(const Work& work) noexcept {
  try {
    work();
    return nullptr;
  } catch (Error& error) {
    return error.release();
  } catch (const std::exception& error) {  // such as std::bad_alloc
    return g_api->CreateStatus(ORT_FAIL, error.what());
  } catch (...) {
    return g_api->CreateStatus(ORT_FAIL, "an operator failed");
  }
}

constexpr ONNXTensorElementDataType kFloat = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
constexpr ONNXTensorElementDataType kUint8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
constexpr ONNXTensorElementDataType kFloat16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
constexpr ONNXTensorElementDataType kInt8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
constexpr ONNXTensorElementDataType kInt32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
constexpr ONNXTensorElementDataType kInt64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
constexpr ONNXTensorElementDataType kBool = ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL;
constexpr OrtCustomOpInputOutputCharacteristic kRequired = INPUT_OUTPUT_REQUIRED;
constexpr OrtCustomOpInputOutputCharacteristic kOptional = INPUT_OUTPUT_OPTIONAL;

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
    if (value_ != nullptr) check(g_api->GetTensorMutableData(value_, &pointer));
    return static_cast<T*>(pointer);
  }

  Shape shape() const {
    OrtTensorTypeAndShapeInfo* created = nullptr;
    check(g_api->GetTensorTypeAndShape(value_, &created));
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(g_api->ReleaseTensorTypeAndShapeInfo)> info(
        created, g_api->ReleaseTensorTypeAndShapeInfo);
    size_t rank = 0;
    check(g_api->GetDimensionsCount(info.get(), &rank));
    Shape shape(rank);
    check(g_api->GetDimensions(info.get(), shape.data(), rank));
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
    size_t number = 0;
    check(g_api->KernelInfo_GetInputCount(info_, &number));
    int is_constant = 0;
    const OrtValue* value = nullptr;
    if (index < number) check(g_api->KernelInfoGetConstantInput_tensor(info_, index, &is_constant, &value));
    return Tensor(is_constant ? value : nullptr);
  }

  int64_t integer(const char* name, int64_t otherwise) const {
    int64_t value = 0;
    return has_attribute(g_api->KernelInfoGetAttribute_int64(info_, name, &value)) ? value : otherwise;
  }

  float number(const char* name, float otherwise) const {
    float value = 0;
    return has_attribute(g_api->KernelInfoGetAttribute_float(info_, name, &value)) ? value : otherwise;
  }

 private:
  // The interface has no code of its own for an attribute that is not there.
  static bool has_attribute(OrtStatus* status) {
    if (status != nullptr) g_api->ReleaseStatus(status);
    return status == nullptr;
  }

  const OrtKernelInfo* info_;
};

// One run of a node.
class Context {
 public:
  explicit Context(OrtKernelContext* context) : context_(context) {}

  // Return an input; a null tensor if it is optional and not given.
  Tensor input(size_t index) const {
    size_t number = 0;
    check(g_api->KernelContext_GetInputCount(context_, &number));
    const OrtValue* value = nullptr;
    if (index < number) check(g_api->KernelContext_GetInput(context_, index, &value));
    return Tensor(value);
  }

  // Allocate an output.
  Tensor output(size_t index, const Shape& shape) const {
    OrtValue* value = nullptr;
    check(g_api->KernelContext_GetOutput(context_, index, shape.data(), shape.size(), &value));
    return Tensor(value);
  }

  // Call work(0), ..., work(number - 1) on the threads of the session. An exception of one of them is
  // thrown when all have ended: on the way there are frames of ONNX Runtime that must not see it.
  template <class Work>
  void parallel(size_t number, const Work& work) const {
    if (number == 1) return work(size_t(0));
    Tasks<Work> tasks{work};
    check(g_api->KernelContext_ParallelFor(context_, Tasks<Work>::run, number, 0, &tasks));
    check(tasks.first_error);
  }

 private:
  template <class Work>
  struct Tasks {
    const Work& work;
    std::atomic<OrtStatus*> first_error{nullptr};

    static void run(void* pointer, size_t index) {
      auto& tasks = *static_cast<Tasks*>(pointer);
      OrtStatus* const error = as_status([&] { tasks.work(index); });
      OrtStatus* none = nullptr;
      if (error != nullptr && !tasks.first_error.compare_exchange_strong(none, error)) g_api->ReleaseStatus(error);
    }
  };

  OrtKernelContext* context_;
};

struct Port {
  ONNXTensorElementDataType type;
  OrtCustomOpInputOutputCharacteristic presence = kRequired;
};

// The description of an operator class for ONNX Runtime. A class has `kName`, `kInputs`, `kOutputs`,
// a constructor from Info, and `void compute(const Context&) const`.
template <class Operator>
const OrtCustomOp* description() {
  static const OrtCustomOp op = [] {
    OrtCustomOp op{};
    op.version = ORT_API_VERSION;
    op.GetName = [](const OrtCustomOp*) { return Operator::kName; };
    op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return "CPUExecutionProvider"; };
    op.GetInputTypeCount = [](const OrtCustomOp*) { return std::size(Operator::kInputs); };
    op.GetInputType = [](const OrtCustomOp*, size_t i) { return Operator::kInputs[i].type; };
    op.GetInputCharacteristic = [](const OrtCustomOp*, size_t i) { return Operator::kInputs[i].presence; };
    op.GetOutputTypeCount = [](const OrtCustomOp*) { return std::size(Operator::kOutputs); };
    op.GetOutputType = [](const OrtCustomOp*, size_t i) { return Operator::kOutputs[i].type; };
    op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t i) { return Operator::kOutputs[i].presence; };
    op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
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
