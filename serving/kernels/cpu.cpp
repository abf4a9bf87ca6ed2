// The choice of kernels by what the processor and the operating system support.
#include <cstdlib>
#include <cstring>

#include "kernels.h"

#if defined(__aarch64__)

#include <sys/auxv.h>

namespace {

bool is_supported(const Kernels& kernels) {
  const auto is = [&](const char* name) { return std::strcmp(kernels.name, name) == 0; };
  constexpr unsigned long kDotProduct = 1 << 20;  // HWCAP_ASIMDDP
  return is("neon") || getauxval(AT_HWCAP) & kDotProduct;
}

}  // namespace

#else

#include <sys/syscall.h>
#include <unistd.h>

namespace {

struct Registers {
  unsigned eax, ebx, ecx, edx;
};

// __builtin_cpu_supports("avx512vnni") was false under a clang-based compiler, so ask the processor.
Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __asm__("cpuid" : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx) : "a"(leaf), "c"(subleaf));
  return r;
}

unsigned saved_registers() {  // which the operating system saves: XCR0
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool bit(unsigned value, int number) { return value >> number & 1; }

// Ask the operating system for the tile registers of this process.
bool may_use_amx() {
  constexpr int kRequestPermission = 0x1023, kAmxTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kAmxTileData) == 0;
}

bool is_supported(const Kernels& kernels) {
  const auto is = [&](const char* name) { return std::strcmp(kernels.name, name) == 0; };
  constexpr unsigned kAvxState = 0x06, kAvx512State = 0xe6;
  const Registers basic = cpuid(1, 0);
  if (!bit(basic.ecx, 27) || !bit(basic.ecx, 12) || !bit(basic.ecx, 29)) return false;  // OSXSAVE, FMA, F16C
  const unsigned saved = saved_registers();
  const Registers extended = cpuid(7, 0);
  const bool has_avx2 = (saved & kAvxState) == kAvxState && bit(extended.ebx, 5);
  if (is("avx2")) return has_avx2;
  if (is("avx_vnni")) return has_avx2 && extended.eax >= 1 && bit(cpuid(7, 1).eax, 4);
  const bool has_avx512 = (saved & kAvx512State) == kAvx512State && bit(extended.ebx, 16) &&  // F
                          bit(extended.ebx, 17) && bit(extended.ebx, 30) &&                    // DQ, BW
                          bit(extended.ebx, 31) && bit(extended.ecx, 11);                      // VL, VNNI
  if (is("avx512_vnni")) return has_avx512;
  constexpr unsigned kAmxState = 0x60000;
  const bool has_amx = (saved & kAmxState) == kAmxState && bit(extended.edx, 22) &&  // BF16
                       bit(extended.edx, 24) && bit(extended.edx, 25);                       // TILE, INT8
  return has_avx512 && has_amx && may_use_amx();
}

}  // namespace

#endif

namespace {

const Kernels* choose_kernels() {
  const char* name = std::getenv("ATTENDANT_KERNELS");
  const Kernels* widest_first[] = {KERNELS_TABLES};  // those that were compiled, see build.py
  bool is_allowed = name == nullptr || *name == '\0';
  for (const Kernels* kernels : widest_first) {
    is_allowed = is_allowed || std::strcmp(name, kernels->name) == 0;
    if (is_allowed && is_supported(*kernels)) return kernels;
  }
  return nullptr;
}

}  // namespace

const Kernels* kernels_of_processor() {
  static const Kernels* const kernels = choose_kernels();
  return kernels;
}
