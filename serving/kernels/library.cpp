// The entry points of the library.
#include "attention.h"
#include "block_linear.h"
#include "choice.h"
#include "encoder.h"
#include "linear.h"
#include "recurrent.h"

#include <new>

#ifdef WITH_SYSTEM_LIBRARY  // libstdc++ with the headers of libc++: these are inline in its own
std::bad_alloc::bad_alloc() noexcept {}
std::bad_array_new_length::bad_array_new_length() noexcept {}
#endif

const OrtApi* g_api = nullptr;

namespace {

constexpr const char* kDomain = "attendant";

void add_operators(OrtSessionOptions* options) {
  static OrtCustomOpDomain* const domain = [] {
    OrtCustomOpDomain* created = nullptr;
    check(g_api->CreateCustomOpDomain(kDomain, &created));
    for (const OrtCustomOp* op :
         {description<QuantizedLinear>(), description<BlockQuantizedLinear>(), description<SelfAttention>(), description<Fp16SelfAttention>(),
          description<CrossAttention>(), description<Int8CrossAttention>(), description<CrossAttentionWeights>(),
          description<Int8CrossAttentionWeights>(), description<EncoderAttention>(),
          description<QuantizeMemory>(), description<TokenChoice>(),
          description<GruCell>(), description<GruReset>(), description<GruUpdate>(), description<LstmCell>(),
          description<SsruCell>(), description<AdditiveAttention>(), description<DotAttention>()}) {
      check(g_api->CustomOpDomain_Add(created, op));
    }
    return created;
  }();
  check(g_api->AddCustomOpDomain(options, domain));
}

}  // namespace

extern "C" {

// Return the name of the instruction set that the kernels use; null if this processor has none.
[[gnu::visibility("default")]] const char* attendant_kernels() {
  const Kernels* kernels = kernels_of_processor();
  return kernels == nullptr ? nullptr : kernels->name;
}

// Return the version of ONNX Runtime's C interface that is needed: ONNX Runtime 1.N has version N.
[[gnu::visibility("default")]] uint32_t attendant_api_version() { return ORT_API_VERSION; }

// Called by ONNX Runtime's SessionOptions.register_custom_ops_library.
[[gnu::visibility("default")]] OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  static const OrtApi* const api = g_api = base->GetApi(ORT_API_VERSION);  // once: sessions are opened by several threads
  if (api == nullptr) {  // the first version is one that all have
    return base->GetApi(1)->CreateStatus(ORT_NOT_IMPLEMENTED, "Attendant's kernels need a newer ONNX Runtime");
  }
  return as_status([&] {
    require(kernels_of_processor() != nullptr, "the processor has no instructions for these operators");
    add_operators(options);
  });
}

}  // extern "C"
