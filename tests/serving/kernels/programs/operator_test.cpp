// Errors of operators, with an interface of ONNX Runtime whose functions fail or start threads.
#include "operator.h"

#include <new>
#include <string>
#include <thread>

#include "check.h"

const OrtApi* g_api = nullptr;

struct OrtStatus {
  OrtErrorCode code;
  std::string text;
};

namespace {

std::atomic<int> num_statuses{0};  // that are not released
std::atomic<int> num_infos{0};

OrtStatus* create(OrtErrorCode code, const char* text) noexcept {
  num_statuses++;
  return new OrtStatus{code, text};
}

void release(OrtStatus* status) noexcept {
  num_statuses--;
  delete status;
}

OrtStatus* fail(const char* function) { return create(ORT_FAIL, function); }

OrtStatus* run_in_threads(const OrtKernelContext*, void (*run)(void*, size_t), size_t number, size_t, void* data) noexcept {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < number; i++) threads.emplace_back(run, data, i);
  for (std::thread& thread : threads) thread.join();
  return nullptr;
}

OrtApi interface() {
  OrtApi api{};
  api.CreateStatus = create;
  api.ReleaseStatus = release;
  api.KernelContext_ParallelFor = run_in_threads;
  api.GetTensorTypeAndShape = [](const OrtValue*, OrtTensorTypeAndShapeInfo** info) noexcept -> OrtStatus* {
    num_infos++;
    *info = reinterpret_cast<OrtTensorTypeAndShapeInfo*>(&num_infos);
    return nullptr;
  };
  api.ReleaseTensorTypeAndShapeInfo = [](OrtTensorTypeAndShapeInfo*) noexcept { num_infos--; };
  api.GetDimensionsCount = [](const OrtTensorTypeAndShapeInfo*, size_t* rank) noexcept -> OrtStatus* {
    *rank = 2;
    return nullptr;
  };
  api.GetDimensions = [](const OrtTensorTypeAndShapeInfo*, int64_t*, size_t) noexcept { return fail("GetDimensions"); };
  api.KernelContext_GetInputCount = [](const OrtKernelContext*, size_t*) noexcept { return fail("GetInputCount"); };
  api.KernelContext_GetOutput = [](OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**) noexcept {
    return fail("GetOutput");
  };
  return api;
}

// Run work, and return the text of its error; "" if there is none. All statuses are released.
template <class Work>
std::string error_of(const Work& work) {
  OrtStatus* const status = as_status(work);
  const std::string text = status == nullptr ? "" : status->text;
  if (status != nullptr) release(status);
  CHECK(num_statuses == 0);
  return text;
}

}  // namespace

int main() {
  const OrtApi api = interface();
  g_api = &api;
  const Context context(nullptr);

  // An exception of a task is that of the caller, after all tasks have run.
  for (size_t number : {size_t(1), size_t(7)}) {
    std::atomic<size_t> num_run{0};
    const auto run_all = [&](auto raise) {
      num_run = 0;
      return error_of([&] {
        context.parallel(number, [&](size_t) {
          num_run++;
          raise();
        });
      });
    };
    CHECK(run_all([] { throw std::bad_alloc(); }) == std::bad_alloc().what());
    CHECK(num_run == number);
    CHECK(run_all([] { require(false, "wrong"); }) == "wrong");
    CHECK(run_all([] { throw 7; }) == "an operator failed");
    CHECK(run_all([] {}) == "");
    CHECK(num_run == number);
  }

  // A call that fails is an error of the operator; what was created before is released.
  const Tensor tensor(reinterpret_cast<const OrtValue*>(&api));
  CHECK(error_of([&] { tensor.shape(); }) == "GetDimensions");
  CHECK(num_infos == 0);
  CHECK(error_of([&] { context.input(0); }) == "GetInputCount");
  CHECK(error_of([&] { context.output(0, {1}); }) == "GetOutput");
}
