// Attention of all tokens of a long row to each other, as in an encoder of speech: products of matrices; included by
// kernels.cpp for each instruction set.
//
// The keys and values of a head are packed once for all queries. A tile of queries takes them in blocks of kLongBlock:
// scores, their exponentials relative to the greatest score so far, and the values by these, which are added to the
// scaled sums of the blocks before (Dao et al. 2022, "FlashAttention", algorithm 1). The order of all sums depends on
// the positions of keys only, so that a query has the same bits whichever queries are beside it.
//
// With AMX each number is the sum of two bf16, which have 16 bits of its 24, and a product that of three: the product
// of the lower halves is below 2**-16 of it and left out.
#pragma once

#include "attention_kernels.h"
#include "vectors.h"

namespace {

constexpr int kLongBlock = 256;  // keys

// The greatest score and the sum of exponentials of each query of a tile, over the blocks so far.
template <int Queries>
struct LongState {
  float maxima[Queries], totals[Queries];

  INLINE LongState() {
    for (int q = 0; q < Queries; q++) maxima[q] = kLowest, totals[q] = 0;
  }
};

// Replace the scores of a query by put(key, exponentials), vector by vector, up to `padded` keys, and scale what `sums`
// has of the blocks before.
template <class Put>
INLINE void exponentiate_block(const float* scores, int length, int padded, float& maximum, float& total, float* sums, int dims,
                               const Put& put) {
  Floats greatest = all(maximum);
  int j = 0;
  for (; j + kLanes <= length; j += kLanes) greatest = max(load(scores + j), greatest);
  if (j < length) greatest = max(keep_first(load(scores + j), length - j, kLowest), greatest);
  const float before = maximum;
  maximum = max_of(greatest);
  const Floats largest = all(maximum);
  Floats sum = zeros();
  for (j = 0; j + kLanes <= length; j += kLanes) {
    const Floats exponentials = exponential(sub(load(scores + j), largest));
    sum = add(sum, exponentials);
    put(j, exponentials);
  }
  for (; j < padded; j += kLanes) {
    const Floats exponentials = keep_first(exponential(sub(load(scores + j), largest)), larger(0, length - j), 0);
    sum = add(sum, exponentials);
    put(j, exponentials);
  }
  if (before != maximum) {
    const Floats factor = exponential_or_zero(sub(all(before), largest));
    for (int d = 0; d < dims; d += kLanes) store(sums + d, mul(factor, load(sums + d)));
    total *= max_of(factor);
  }
  total += sum_of(sum);
}

INLINE int round_up(int number, int multiple) { return (number + multiple - 1) / multiple * multiple; }

template <int Queries>
INLINE void write_long_results(const LongAttention& attention, const LongState<Queries>& state, int first, int number,
                               const float* sums, int dims) {
  for (int q = 0; q < number; q++) {
    const Floats share = all(1 / state.totals[q]);
    float* const out = attention.out + (first + q) * attention.out_stride;
    for (int d = 0; d < attention.head_dim; d += kLanes) {
      store_first(out + d, mul(share, load(sums + q * dims + d)), attention.head_dim - d);
    }
  }
}

#if defined(__AMX_BF16__)

// A tile register has 16 rows of 32 numbers in bf16. Those of the right side of a product are pairs, one below the
// other in the matrix: [16 pairs][16 columns][2].
constexpr int kTileRows = 16, kTileDepth = 32, kTileNumbers = kTileRows * kTileDepth, kLongQueries = 2 * kTileRows;
using Bf16 = uint16_t;

// The bits of 16 numbers, rounded to bf16: the upper half of each lane.
INLINE Integers round_to_bf16(Floats x) {
  const Integers rounded = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_and_si512(rounded, _mm512_set1_epi32(int(0xffff0000)));
}

struct SplitFloats {
  Integers high, low;

  INLINE explicit SplitFloats(Floats x) {
    high = round_to_bf16(x);
    low = round_to_bf16(sub(x, _mm512_castsi512_ps(high)));
  }
};

INLINE void store_bf16(Bf16* to, Integers upper_halves_of_lanes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_srli_epi32(upper_halves_of_lanes, 16)));
}

// Write a tile of the right side, that of the higher halves and then that of the lower ones. row(r): the 16 numbers of a
// row.
template <class Row>
INLINE void pack_tile(const Row& row, Bf16* tile) {
  for (int p = 0; p < kTileRows; p++) {
    const SplitFloats first(row(2 * p)), second(row(2 * p + 1));
    _mm512_storeu_si512(tile + p * kTileDepth, _mm512_or_si512(second.high, _mm512_srli_epi32(first.high, 16)));
    _mm512_storeu_si512(tile + kTileNumbers + p * kTileDepth, _mm512_or_si512(second.low, _mm512_srli_epi32(first.low, 16)));
  }
}

// The packed keys are tiles [tiles of keys][chunks of the head][2], the values [chunks of keys][tiles of the head][2].
struct PackedHead {
  int keys, dims, chunks;
  Bf16 *key_tiles, *value_tiles;

  INLINE PackedHead(uint8_t* packed, int length, int head_dim)
      : keys(round_up(length, kTileDepth)), dims(round_up(head_dim, kTileDepth)), chunks(dims / kTileDepth),
        key_tiles(reinterpret_cast<Bf16*>(packed)), value_tiles(key_tiles + int64_t(keys) * dims * 2) {}
};

int64_t packed_bytes(int length, int head_dim) {
  const PackedHead head(nullptr, length, head_dim);
  return int64_t(head.keys) * head.dims * 4 * int(sizeof(Bf16));
}

void pack_head(const float* keys, const float* values, int64_t stride, int length, int head_dim, uint8_t* packed) {
  const PackedHead head(packed, length, head_dim);
  const Integers places = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                             _mm512_set1_epi32(int(stride)));
  for (int key = 0; key < head.keys; key += kTileRows) {
    const __mmask16 is_key = first_lanes(larger(0, smaller(length - key, kTileRows)));
    for (int c = 0; c < head.chunks; c++) {
      pack_tile([&](int row) __attribute__((always_inline)) {
        const int d = c * kTileDepth + row;
        if (d >= head_dim) return zeros();
        return _mm512_mask_i32gather_ps(zeros(), is_key, places, keys + key * stride + d, sizeof(float));
      }, head.key_tiles + (int64_t(key / kTileRows) * head.chunks + c) * 2 * kTileNumbers);
    }
  }
  for (int key = 0; key < head.keys; key += kTileDepth) {
    for (int d = 0; d < head.dims; d += kTileRows) {
      pack_tile([&](int row) __attribute__((always_inline)) {
        if (key + row >= length || d >= head_dim) return zeros();
        return load_first(values + (key + row) * stride + d, head_dim - d);
      }, head.value_tiles + (int64_t(key / kTileDepth) * (head.dims / kTileRows) + d / kTileRows) * 2 * kTileNumbers);
    }
  }
}

// The left side of a product: 32 rows of the higher halves, and of the lower ones.
struct SplitRows {
  Bf16 *high, *low;
  int stride;
};

// Let the compiler finish all stores before tiles are loaded: it does not know that their instructions read memory.
INLINE void finish_stores() { __asm__ volatile("" ::: "memory"); }

// Add the products of 32 rows with 32 columns to tiles 0 to 3. right: of the first 16 columns; `second` numbers further
// are those of the others, and `step` further those of the next 32 rows.
INLINE void add_split_products(const SplitRows& left, const Bf16* right, int64_t second, int64_t step, int chunks) {
  const int bytes = left.stride * int(sizeof(Bf16));
  const int64_t lower_rows = int64_t(kTileRows) * left.stride;
  finish_stores();
  for (int c = 0; c < chunks; c++, right += step) {
    const Bf16 *const high = left.high + c * kTileDepth, *const low = left.low + c * kTileDepth;
    _tile_loadd(4, high, bytes);
    _tile_loadd(5, high + lower_rows, bytes);
    _tile_loadd(6, right + kTileNumbers, 64);
    _tile_loadd(7, right + second + kTileNumbers, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(6, right, 64);
    _tile_loadd(7, right + second, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(4, low, bytes);
    _tile_loadd(5, low + lower_rows, bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

INLINE void store_tiles(float* sums, int stride) {
  const int bytes = stride * int(sizeof(float));
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + kTileRows, bytes);
  _tile_stored(2, sums + kTileRows * stride, bytes);
  _tile_stored(3, sums + kTileRows * stride + kTileRows, bytes);
}

INLINE void load_tiles(const float* sums, int stride) {
  finish_stores();
  const int bytes = stride * int(sizeof(float));
  _tile_loadd(0, sums, bytes);
  _tile_loadd(1, sums + kTileRows, bytes);
  _tile_loadd(2, sums + kTileRows * stride, bytes);
  _tile_loadd(3, sums + kTileRows * stride + kTileRows, bytes);
}

void attend_long(const LongAttention& attention) {
  const PackedHead head(const_cast<uint8_t*>(attention.packed), attention.length, attention.head_dim);
  const int dims = head.dims;
  alignas(64) Bf16 query_numbers[2 * kLongQueries * kMostHeadDim], weights[2 * kLongQueries * kLongBlock];
  alignas(64) float scores[kLongQueries * kLongBlock], sums[kLongQueries * kMostHeadDim];
  const SplitRows queries{query_numbers, query_numbers + kLongQueries * dims, dims};
  const SplitRows exponentials{weights, weights + kLongQueries * kLongBlock, kLongBlock};
  configure_amx();
  for (int first = 0; first < attention.number; first += kLongQueries) {
    const int number = smaller(kLongQueries, attention.number - first);
    for (int q = 0; q < kLongQueries; q++) {
      const float* const query = attention.queries + (first + q) * attention.query_stride;
      for (int d = 0; d < dims; d += kLanes) {
        const bool is_any = q < number && d < attention.head_dim;
        const SplitFloats split(is_any ? mul(all(attention.scale), load_first(query + d, attention.head_dim - d)) : zeros());
        store_bf16(queries.high + q * dims + d, split.high);
        store_bf16(queries.low + q * dims + d, split.low);
      }
    }
    std::memset(sums, 0, sizeof(float) * kLongQueries * dims);
    LongState<kLongQueries> state;
    for (int block = 0; block < attention.length; block += kLongBlock) {
      const int length = smaller(kLongBlock, attention.length - block), padded = smaller(kLongBlock, head.keys - block);
      const int64_t row_of_tiles = int64_t(head.chunks) * 2 * kTileNumbers;
      for (int j = 0; j < padded; j += 2 * kTileRows) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        add_split_products(queries, head.key_tiles + (block + j) / kTileRows * row_of_tiles, row_of_tiles, 2 * kTileNumbers,
                           head.chunks);
        store_tiles(scores + j, kLongBlock);
      }
      for (int q = 0; q < number; q++) {
        exponentiate_block(scores + q * kLongBlock, length, padded, state.maxima[q], state.totals[q], sums + q * dims, dims,
                           [&](int j, Floats numbers) __attribute__((always_inline)) {
                             const SplitFloats split(numbers);
                             store_bf16(exponentials.high + q * kLongBlock + j, split.high);
                             store_bf16(exponentials.low + q * kLongBlock + j, split.low);
                           });
      }
      const int64_t tiles_of_chunk = int64_t(dims / kTileRows) * 2 * kTileNumbers;
      for (int d = 0; d < dims; d += 2 * kTileRows) {
        load_tiles(sums + d, dims);
        add_split_products(exponentials, head.value_tiles + block / kTileDepth * tiles_of_chunk + d / kTileRows * 2 * kTileNumbers,
                           2 * kTileNumbers, tiles_of_chunk, padded / kTileDepth);
        store_tiles(sums + d, dims);
      }
    }
    write_long_results(attention, state, first, number, sums, dims);
  }
  _tile_release();
}

#else

// Queries of a tile; queries, and vectors of columns, whose sums fit the registers.
constexpr int kLongQueries = 48, kLongRows = 6, kLongVectors = kLanes == 16 ? 4 : 2;
constexpr int kLongColumns = kLongVectors * kLanes;

// The packed keys are [panels][head_dim][kLongColumns], the values [keys][dims].
struct PackedHead {
  int keys, dims;
  float *panels, *values;

  INLINE PackedHead(uint8_t* packed, int length, int head_dim)
      : keys(round_up(length, kLongColumns)), dims(round_up(head_dim, kLanes)), panels(reinterpret_cast<float*>(packed)),
        values(panels + int64_t(keys) * head_dim) {}
};

int64_t packed_bytes(int length, int head_dim) {
  const PackedHead head(nullptr, length, head_dim);
  return int64_t(head.keys) * (head_dim + head.dims) * int(sizeof(float));
}

void pack_head(const float* keys, const float* values, int64_t stride, int length, int head_dim, uint8_t* packed) {
  const PackedHead head(packed, length, head_dim);
  for (int key = 0; key < head.keys; key++) {
    float* const column = head.panels + int64_t(key / kLongColumns) * head_dim * kLongColumns + key % kLongColumns;
    for (int d = 0; d < head_dim; d++) column[d * kLongColumns] = key < length ? keys[key * stride + d] : 0;
    for (int d = 0; d < head.dims; d += kLanes) {
      const bool is_any = key < length && d < head_dim;
      store(head.values + int64_t(key) * head.dims + d, is_any ? load_first(values + key * stride + d, head_dim - d) : zeros());
    }
  }
}

// Multiply rows [kLongRows, depth] by vectors of columns [depth, Vectors * kLanes]; kAdds: to what `sums` has.
template <int Vectors, bool kAdds>
INLINE void multiply_rows(const float* rows, int row_stride, const float* columns, int column_stride, int depth, float* sums,
                          int stride) {
  Floats products[kLongRows][Vectors];
  for (int r = 0; r < kLongRows; r++) {
    for (int v = 0; v < Vectors; v++) products[r][v] = kAdds ? load(sums + r * stride + v * kLanes) : zeros();
  }
  for (int k = 0; k < depth; k++, columns += column_stride) {
    Floats chunk[Vectors];
    for (int v = 0; v < Vectors; v++) chunk[v] = load(columns + v * kLanes);
    for (int r = 0; r < kLongRows; r++) {
      const Floats factor = all(rows[r * row_stride + k]);
      for (int v = 0; v < Vectors; v++) products[r][v] = fma(factor, chunk[v], products[r][v]);
    }
  }
  for (int r = 0; r < kLongRows; r++) {
    for (int v = 0; v < Vectors; v++) store(sums + r * stride + v * kLanes, products[r][v]);
  }
}

void attend_long(const LongAttention& attention) {
  const PackedHead head(const_cast<uint8_t*>(attention.packed), attention.length, attention.head_dim);
  const int dims = head.dims, head_dim = attention.head_dim;
  alignas(64) float scaled[kLongQueries * kMostHeadDim], sums[kLongQueries * kMostHeadDim];
  alignas(64) float scores[kLongQueries * kLongBlock];
  for (int first = 0; first < attention.number; first += kLongQueries) {
    const int number = smaller(kLongQueries, attention.number - first), rows = round_up(number, kLongRows);
    for (int q = 0; q < rows; q++) {
      const float* const query = attention.queries + (first + q) * attention.query_stride;
      for (int d = 0; d < dims; d += kLanes) {
        const bool is_any = q < number && d < head_dim;
        store(scaled + q * dims + d, is_any ? mul(all(attention.scale), load_first(query + d, head_dim - d)) : zeros());
      }
    }
    std::memset(sums, 0, sizeof(float) * rows * dims);
    LongState<kLongQueries> state;
    for (int block = 0; block < attention.length; block += kLongBlock) {
      const int length = smaller(kLongBlock, attention.length - block), padded = round_up(length, kLanes);
      for (int j = 0; j < length; j += kLongColumns) {
        const float* const panel = head.panels + int64_t(block + j) * head_dim;
        for (int q = 0; q < rows; q += kLongRows) {
          multiply_rows<kLongVectors, false>(scaled + q * dims, dims, panel, kLongColumns, head_dim, scores + q * kLongBlock + j,
                                             kLongBlock);
        }
      }
      for (int q = 0; q < rows; q++) {
        float* const row = scores + q * kLongBlock;
        exponentiate_block(row, length, padded, state.maxima[q], state.totals[q], sums + q * dims, dims,
                           [&](int j, Floats numbers) __attribute__((always_inline)) { store(row + j, numbers); });
      }
      const float* const values = head.values + int64_t(block) * dims;
      int d = 0;
      for (; d + kLongColumns <= dims; d += kLongColumns) {
        for (int q = 0; q < rows; q += kLongRows) {
          multiply_rows<kLongVectors, true>(scores + q * kLongBlock, kLongBlock, values + d, dims, length, sums + q * dims + d, dims);
        }
      }
      for (; d < dims; d += kLanes) {
        for (int q = 0; q < rows; q += kLongRows) {
          multiply_rows<1, true>(scores + q * kLongBlock, kLongBlock, values + d, dims, length, sums + q * dims + d, dims);
        }
      }
    }
    write_long_results(attention, state, first, number, sums, dims);
  }
}

#endif

}  // namespace
