// How the product of a layer is divided over threads.
#pragma once

#include <algorithm>

#include "operator.h"

// Call work(first_tile, last_tile, first_row, num_rows) for all parts of a product. A part is some tiles of weights
// by so many rows as stay in a cache with them; the next one has the next rows, as long as there are any. There are
// more parts than threads, so that one that starts late holds up little; but weights are fetched ahead of their use,
// in vain at the end of a part, which is long therefore.
template <class Work>
void divide_product(const Context& context, int64_t rows, int tiles, size_t weight_bytes, const Work& work) {
  constexpr int kRowsOfPart = 64, kFewestParts = 8, kMostParts = 64;
  constexpr size_t kPartBytes = 1 << 18;  // of weights
  const int64_t chunks = (rows + kRowsOfPart - 1) / kRowsOfPart;
  const int wanted = int(std::min(weight_bytes / kPartBytes, size_t(kMostParts)));
  const int parts = std::min(tiles, std::max(wanted, kFewestParts));
  context.parallel(size_t(chunks) * parts, [&](size_t task) {
    const int64_t first_row = int64_t(task) % chunks * kRowsOfPart, part = int64_t(task) / chunks;
    const int first_tile = int(part * tiles / parts), last_tile = int((part + 1) * tiles / parts);
    work(first_tile, last_tile, first_row, int(std::min<int64_t>(kRowsOfPart, rows - first_row)));
  });
}
