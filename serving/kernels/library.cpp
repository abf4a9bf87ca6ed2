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
    require(!failed(call(Entry::CreateCustomOpDomain, kDomain, &created)), "no domain of operators can be made");
    for (const OrtCustomOp* op :
         {description<QuantizedLinear>(), description<BlockQuantizedLinear>(), description<SelfAttention>(),
          description<CrossAttention>(), description<Int8CrossAttention>(), description<CrossAttentionWeights>(),
          description<Int8CrossAttentionWeights>(), description<EncoderAttention>(),
          description<QuantizeMemory>(), description<TokenChoice>(),
          description<GruCell>(), description<GruReset>(), description<GruUpdate>(), description<LstmCell>(),
          description<SsruCell>(), description<AdditiveAttention>(), description<DotAttention>()}) {
      require(!failed(call(Entry::CustomOpDomain_Add, created, op)), "an operator cannot be added");
    }
    return created;
  }();
  require(!failed(call(Entry::AddCustomOpDomain, options, domain)), "the operators cannot be registered");
}

}  // namespace

extern "C" {

// Return the name of the instruction set that the kernels use; null if this processor has none.
[[gnu::visibility("default")]] const char* attendant_kernels() {
  const Kernels* kernels = kernels_of_processor();
  return kernels == nullptr ? nullptr : kernels->name;
}

// Called by ONNX Runtime's SessionOptions.register_custom_ops_library.
[[gnu::visibility("default")]] OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  g_api = base->GetApi(kApiVersion);
  if (g_api == nullptr) return nullptr;  // a version without these functions: nothing is registered
  return as_status([&] {
    require(kernels_of_processor() != nullptr, "the processor has no instructions for these operators");
    add_operators(options);
  });
}

}  // extern "C"
