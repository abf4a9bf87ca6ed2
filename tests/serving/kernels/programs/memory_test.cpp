// Scratch memory of a thread: aligned, there for the calls that follow, and given back some day.
#include "memory.h"

#include <malloc.h>

#include "check.h"

namespace {

constexpr size_t kLarge = size_t(64) << 20;

size_t allocated_bytes() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

void call_often(size_t bytes, int times) {
  for (int call = 0; call < times; call++) std::memset(scratch(bytes), 1, bytes);
}

}  // namespace

int main() {
  const size_t before = allocated_bytes();
  for (size_t bytes : {size_t(1), size_t(100), size_t(5000), kLarge}) {
    uint8_t* const memory = scratch(bytes);
    CHECK(reinterpret_cast<uintptr_t>(memory) % kAlignment == 0);
    std::memset(memory, 1, bytes);
    CHECK(scratch(bytes) == memory);  // it is not allocated anew
  }
  CHECK(allocated_bytes() - before >= kLarge);

  // It stays while one call of many needs half of it, and goes when none does.
  uint8_t* const large = scratch(kLarge);
  for (int i = 0; i < 10; i++) {
    call_often(1000, 1000);
    CHECK(scratch(kLarge / 2) == large);
  }
  call_often(1000, 10'000);
  CHECK(allocated_bytes() - before < kLarge / 8);

  // Where there is no memory, the error is one of C++, and memory can be had later.
  bool has_failed = false;
  try {
    scratch(SIZE_MAX / 2);
  } catch (const std::bad_alloc&) {
    has_failed = true;
  }
  CHECK(has_failed);
  std::memset(scratch(1000), 1, 1000);
}
