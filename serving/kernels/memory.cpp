// Memory of threads that they use again and again.
#include "memory.h"

#include <algorithm>

namespace {

constexpr size_t kSmall = size_t(1) << 20;  // bytes, not worth to give back
constexpr int kCallsBetweenReviews = 4096;  // some tens of tokens of a language model

// The memory of one thread. What a long prompt needed is given back when no call of many needed as
// much as a quarter of it.
class Scratch {
 public:
  uint8_t* reserve(size_t bytes) {
    largest_lately_ = std::max(largest_lately_, bytes);
    if (bytes > capacity_) allocate(bytes);
    if (++calls_ == kCallsBetweenReviews) {
      if (capacity_ > kSmall && largest_lately_ < capacity_ / 4) allocate(largest_lately_);
      largest_lately_ = 0, calls_ = 0;
    }
    return memory_.get();
  }

 private:
  void allocate(size_t bytes) {
    memory_.reset();  // first, as there may not be room for both
    capacity_ = 0;
    const size_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;
    memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, rounded)));
    if (memory_ == nullptr) throw std::bad_alloc();
    capacity_ = rounded;
  }

  std::unique_ptr<uint8_t, Free> memory_;
  size_t capacity_ = 0, largest_lately_ = 0;
  int calls_ = 0;
};

}  // namespace

uint8_t* scratch(size_t bytes) {
  thread_local Scratch memory;
  return memory.reserve(bytes);
}
