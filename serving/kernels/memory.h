// Memory of the operators.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

constexpr size_t kAlignment = 64, kPrefetched = 4608;  // bytes; prefetches read beyond the end

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Return memory of the calling thread, aligned to 64 bytes, valid until its next call. It stays
// allocated for the calls that follow, unless they need much less of it; see memory.cpp.
uint8_t* scratch(size_t bytes);

// Memory that lives as long as an operator.
using Blocks = std::vector<std::unique_ptr<void, Free>>;

// Add a block of zeros, aligned to 64 bytes.
template <class T>
T* add_zeros(Blocks& blocks, size_t number) {
  const size_t bytes = (number * sizeof(T) + kPrefetched + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  blocks.emplace_back(memory);
  std::memset(memory, 0, bytes);
  return static_cast<T*>(memory);
}
