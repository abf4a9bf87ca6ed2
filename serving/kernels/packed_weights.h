// Packed weights, shared by all operators of the process that have the same.
//
// A process has several sessions of one model: one for each graph and each number of threads. Each
// session creates its own operators, but the weights of a layer are packed and stored once.
//
// std::shared_ptr and std::mutex are not used: a library that is compiled with the headers of libc++
// and linked to libstdc++ (`serving/kernels/build.py`) lacks the functions that they call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "memory.h"

// A hash of 128 bits of everything that packed weights depend on.
class WeightsKey {
 public:
  // operator_name: the same weights are packed in another way for another operator.
  explicit WeightsKey(const char* operator_name);

  // Add an array to the hash; a null pointer differs from an empty array.
  template <class T>
  void add(const T* values, size_t number) {
    add_bytes(values, number * sizeof(T));
  }

  bool operator==(const WeightsKey& other) const { return low == other.low && high == other.high; }

 private:
  void add_bytes(const void* bytes, size_t size);

  uint64_t low = 0, high = 0;
};

struct SharedWeights {
  explicit SharedWeights(const WeightsKey& key) : key(key) {}
  virtual ~SharedWeights() = default;

  const WeightsKey key;
  mutable size_t num_users = 0;  // the registry's lock guards it
};

// A layer, and the memory that its pointers refer to.
template <class Layer>
struct Packed : SharedWeights {
  using SharedWeights::SharedWeights;

  Layer layer;
  Blocks memory;
};

// Return the weights of this key with one user more, or null if none are stored. Thread-safe.
const SharedWeights* find_packed(const WeightsKey& key);

// Store new weights, and return them, or those that another thread has stored under the same key
// meanwhile, with one user more. Thread-safe.
const SharedWeights* store_packed(std::unique_ptr<const SharedWeights> weights);

// Remove a user; weights without users are freed. Thread-safe.
struct ReleasePacked {
  void operator()(const SharedWeights* weights) const;
};

template <class Layer>
using PackedPointer = std::unique_ptr<const Packed<Layer>, ReleasePacked>;

// Return the layer of this key, packed by `pack(Packed<Layer>&)` unless another operator has it.
template <class Layer, class Pack>
PackedPointer<Layer> share_packed(const WeightsKey& key, const Pack& pack) {
  const SharedWeights* shared = find_packed(key);
  if (shared == nullptr) {
    auto packed = std::make_unique<Packed<Layer>>(key);
    pack(*packed);
    shared = store_packed(std::move(packed));
  }
  return PackedPointer<Layer>(static_cast<const Packed<Layer>*>(shared));
}
