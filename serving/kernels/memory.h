// Memory of the operators.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

constexpr size_t kAlignment = 64, kPrefetched = 4608;  // bytes; prefetches read beyond the end

// Return memory of the calling thread, aligned to 64 bytes, valid until its next call.
uint8_t* scratch(size_t bytes);

template <class T>
std::shared_ptr<T> aligned_zeros(size_t number) {
  const size_t bytes = (number * sizeof(T) + kPrefetched + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return std::shared_ptr<T>(static_cast<T*>(memory), std::free);
}
