// The registry of packed weights, and the hash of its keys.
#include "packed_weights.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace {

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

class Lock {
 public:
  Lock() { pthread_mutex_lock(&g_mutex); }
  Lock(const Lock&) = delete;
  ~Lock() { pthread_mutex_unlock(&g_mutex); }
};

// Return all weights that have users; the caller has the lock. The vector is never destroyed: sessions
// may be freed at the end of the process, after static objects.
std::vector<const SharedWeights*>& registry() {
  static auto* const weights = new std::vector<const SharedWeights*>;
  return *weights;
}

// The caller has the lock.
const SharedWeights* find_with_lock(const WeightsKey& key) {
  for (const SharedWeights* weights : registry()) {
    if (weights->key == key) {
      weights->num_users++;
      return weights;
    }
  }
  return nullptr;
}

uint64_t rotate_left(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

uint64_t load_word(const uint8_t* bytes, size_t size) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, size);
  return word;
}

uint64_t mix_all_bits(uint64_t word) {
  word = (word ^ word >> 33) * 0xff51afd7ed558ccd;
  word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53;
  return word ^ word >> 33;
}

}  // namespace

WeightsKey::WeightsKey(const char* operator_name) { add(operator_name, std::strlen(operator_name)); }

// MurmurHash3_x64_128 (Austin Appleby, public domain) with the hash so far as its seed. It excludes
// equal keys by accident, not by intent: whoever chooses a bundle's weights chooses its outputs.
void WeightsKey::add_bytes(const void* data, size_t size) {
  constexpr uint64_t kFirst = 0x87c37b91114253d5, kSecond = 0x4cf5ad432745937f;
  const auto* bytes = static_cast<const uint8_t*>(data);
  uint64_t first = low, second = high;
  const size_t num_bytes = bytes == nullptr ? 0 : size;
  const size_t whole = num_bytes / 16 * 16;
  for (size_t i = 0; i < whole; i += 16) {
    first ^= rotate_left(load_word(bytes + i, 8) * kFirst, 31) * kSecond;
    first = (rotate_left(first, 27) + second) * 5 + 0x52dce729;
    second ^= rotate_left(load_word(bytes + i + 8, 8) * kSecond, 33) * kFirst;
    second = (rotate_left(second, 31) + first) * 5 + 0x38495ab5;
  }
  const size_t rest = num_bytes - whole;
  if (rest > 8) {
    second ^= rotate_left(load_word(bytes + whole + 8, rest - 8) * kSecond, 33) * kFirst;
  }
  if (rest > 0) {
    const size_t first_rest = std::min<size_t>(rest, 8);
    first ^= rotate_left(load_word(bytes + whole, first_rest) * kFirst, 31) * kSecond;
  }
  first ^= num_bytes + (bytes == nullptr);
  second ^= num_bytes;
  first += second;
  second += first;
  first = mix_all_bits(first);
  second = mix_all_bits(second);
  low = first + second;
  high = second + low;
}

const SharedWeights* find_packed(const WeightsKey& key) {
  const Lock lock;
  return find_with_lock(key);
}

const SharedWeights* store_packed(std::unique_ptr<const SharedWeights> weights) {
  const Lock lock;
  if (const SharedWeights* stored = find_with_lock(weights->key)) return stored;
  registry().push_back(weights.get());
  weights->num_users = 1;
  return weights.release();
}

void ReleasePacked::operator()(const SharedWeights* weights) const {
  {
    const Lock lock;
    if (--weights->num_users > 0) return;
    auto& all = registry();
    all.erase(std::find(all.begin(), all.end(), weights));
  }
  delete weights;
}
