// Vectors of the widest instruction set that this file is compiled for, behind one set of names.
//
// `kernels.cpp` is compiled once for each instruction set. Nothing here may call a function of the
// standard library that is not inlined: the linker keeps one copy of it, which may use instructions
// that another processor does not have.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"

#define INLINE [[gnu::always_inline]] inline
#define NOINLINE [[gnu::noinline]]

namespace {

INLINE float float_of(int32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// max_magnitude(a, b) of each instruction set is the greater of a, which is not negative, and the magnitude of b. It
// compares their bits, so that NaN is the greatest and infinity comes next. max_magnitude_of(v) does so over v.

// Return a scale that is NaN in place of infinity: the quantised values of a row with infinity or NaN
// say nothing, and its outputs have to.
INLINE float nan_if_infinite(float scale) { return scale + (scale - scale); }

}  // namespace

#if defined(__aarch64__)

#include "vectors_neon.h"

#else

#include <immintrin.h>

namespace {

using FourFloats = __m128;

INLINE void store_four(float* p, FourFloats v) { _mm_storeu_ps(p, v); }
INLINE float first_of(FourFloats v) { return _mm_cvtss_f32(v); }

#if defined(__AVX512VNNI__)

constexpr int kLanes = 16;
constexpr bool kSignedValues = false, kHasMagnitudes = false;
using Floats = __m512;
using Integers = __m512i;

INLINE __mmask16 first_lanes(int n) { return n >= 16 ? 0xffff : __mmask16((1u << n) - 1); }
INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
INLINE Floats load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
INLINE void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
INLINE void store_first(float* p, Floats v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
INLINE Floats all(float x) { return _mm512_set1_ps(x); }
INLINE Floats zeros() { return _mm512_setzero_ps(); }
INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
INLINE Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
INLINE Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
INLINE Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
INLINE Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
INLINE Floats absolute(Floats a) { return _mm512_abs_ps(a); }
INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
INLINE Floats round(Floats a) { return _mm512_roundscale_ps(a, 0); }
INLINE Floats keep_first(Floats v, int n, float rest) { return _mm512_mask_blend_ps(first_lanes(n), all(rest), v); }
INLINE Floats zero_where_less(Floats v, Floats a, Floats b) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), v);
}
INLINE bool any_not_less(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
INLINE uint32_t greater_lanes(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE float sum_of(Floats v) {  // by halves
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
INLINE int32_t sum_of(Integers v) { return _mm512_reduce_add_epi32(v); }
INLINE float max_of(Floats v) { return _mm512_reduce_max_ps(v); }
INLINE Floats max_magnitude(Floats a, Floats b) {
  return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(absolute(b))));
}
INLINE float max_magnitude_of(Floats v) { return float_of(_mm512_reduce_max_epi32(_mm512_castps_si512(v))); }
INLINE Floats scale_by_power(Floats p, Floats n) { return _mm512_scalef_ps(p, n); }

// The sums of the lanes of four vectors. kFolds: the distances of lanes that are added, one after the other.
constexpr int kFolds[] = {2, 1, 8, 4}, kNumFolds = 4;
INLINE FourFloats sums_of(Floats a, Floats b, Floats c, Floats d) {
  const Floats ab = add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const Floats cd = add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const Floats low = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
  const Floats high = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
  const Floats all_four = add(low, high);
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all_four), _mm512_extractf32x8_ps(all_four, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

INLINE Integers load_integers(const int32_t* p) { return _mm512_loadu_si512(p); }
INLINE Integers all_integers(int32_t x) { return _mm512_set1_epi32(x); }
INLINE Integers no_integers() { return _mm512_setzero_si512(); }
INLINE Integers plus(Integers a, Integers b) { return _mm512_add_epi32(a, b); }
INLINE Floats to_floats(Integers v) { return _mm512_cvtepi32_ps(v); }
INLINE Integers to_integers(Floats v) { return _mm512_cvtps_epi32(v); }
INLINE Integers load_bytes(const int8_t* p) { return _mm512_load_si512(p); }
INLINE Integers dot4(Integers sum, Integers quantised, Integers weights) { return _mm512_dpbusd_epi32(sum, quantised, weights); }
INLINE Integers dot4(Integers sum, Integers quantised, Integers, Integers weights) { return dot4(sum, quantised, weights); }
INLINE Integers lower_halves(Integers bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
INLINE Integers upper_halves(Integers bytes) { return lower_halves(_mm512_srli_epi16(bytes, 4)); }
constexpr bool kNarrowSums = false;
INLINE Floats load(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
INLINE Floats load_first(const uint16_t* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
INLINE void store_halves(uint16_t* p, Floats v, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
INLINE Floats load(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
INLINE Floats load_first(const int8_t* p, int n) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p)));
}
INLINE void store_bytes(int8_t* p, Integers v, int n) { _mm_mask_storeu_epi8(p, first_lanes(n), _mm512_cvtepi32_epi8(v)); }
INLINE void store_quantised(uint8_t* p, Integers quantised, int n) {  // adds 128
  _mm_mask_storeu_epi8(p, first_lanes(n), _mm512_cvtepi32_epi8(plus(quantised, all_integers(128))));
}

#if defined(__AMX_INT8__)
// What _tile_loadconfig takes: bytes and rows of the tile registers.
struct alignas(64) AmxConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// Make all eight tile registers 16 rows of 64 bytes.
INLINE void configure_amx() {
  AmxConfiguration configuration;
  for (int i = 0; i < 8; i++) {
    configuration.bytes[i] = 64;
    configuration.rows[i] = 16;
  }
  _tile_loadconfig(&configuration);
}
#endif

#else  // AVX2, with or without VNNI

constexpr int kLanes = 8;
using Floats = __m256;
using Integers = __m256i;

INLINE Integers mask_of(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE Floats load(const float* p) { return _mm256_loadu_ps(p); }
INLINE Floats load_first(const float* p, int n) { return n >= 8 ? load(p) : _mm256_maskload_ps(p, mask_of(n)); }
INLINE void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
INLINE void store_first(float* p, Floats v, int n) {
  if (n >= 8) store(p, v); else _mm256_maskstore_ps(p, mask_of(n), v);
}
INLINE Floats all(float x) { return _mm256_set1_ps(x); }
INLINE Floats zeros() { return _mm256_setzero_ps(); }
INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
INLINE Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
INLINE Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
INLINE Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
INLINE Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
INLINE Floats absolute(Floats a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
INLINE Floats round(Floats a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE Floats keep_first(Floats v, int n, float rest) {
  return n >= 8 ? v : _mm256_blendv_ps(all(rest), v, _mm256_castsi256_ps(mask_of(n)));
}
INLINE Floats zero_where_less(Floats v, Floats a, Floats b) { return _mm256_and_ps(v, _mm256_cmp_ps(a, b, _CMP_NLT_UQ)); }
INLINE bool any_not_less(Floats a, Floats b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ)); }
INLINE uint32_t greater_lanes(Floats a, Floats b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
INLINE float sum_of(Floats v) {  // by halves
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
INLINE int32_t sum_of(Integers v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 1)));
}
INLINE float max_of(Floats v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}
INLINE Floats max_magnitude(Floats a, Floats b) {
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(absolute(b))));
}
INLINE float max_magnitude_of(Floats v) {
  const Integers bits = _mm256_castps_si256(v);
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  s = _mm_max_epi32(s, _mm_unpackhi_epi64(s, s));
  return float_of(_mm_extract_epi32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 1)), 0));
}
INLINE Floats scale_by_power(Floats p, Floats n) {
  const Integers exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

// The sums of the lanes of four vectors. kFolds: the distances of lanes that are added, one after the other.
constexpr int kFolds[] = {1, 2, 4}, kNumFolds = 3;
INLINE FourFloats sums_of(Floats a, Floats b, Floats c, Floats d) {
  const Floats all_four = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(all_four), _mm256_extractf128_ps(all_four, 1));
}

INLINE Integers load_integers(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
INLINE Integers all_integers(int32_t x) { return _mm256_set1_epi32(x); }
INLINE Integers no_integers() { return _mm256_setzero_si256(); }
INLINE Integers plus(Integers a, Integers b) { return _mm256_add_epi32(a, b); }
INLINE Floats to_floats(Integers v) { return _mm256_cvtepi32_ps(v); }
INLINE Integers to_integers(Floats v) { return _mm256_cvtps_epi32(v); }
INLINE Integers load_bytes(const int8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
INLINE Floats load(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
INLINE Floats load(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
INLINE Floats load_first(const uint16_t* p, int n) {
  uint16_t halves[8] = {};
  if (n > 0) std::memcpy(halves, p, sizeof(uint16_t) * (n >= 8 ? 8 : n));
  return load(halves);
}
INLINE void store_halves(uint16_t* p, Floats v, int n) {
  const __m128i halves = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(p, &halves, sizeof(uint16_t) * (n >= 8 ? 8 : n));
}
INLINE Floats load_first(const int8_t* p, int n) {
  int64_t bytes = 0;
  std::memcpy(&bytes, p, n >= 8 ? 8 : n);
  return load(reinterpret_cast<const int8_t*>(&bytes));
}
#if defined(__AVXVNNI__)
constexpr bool kSignedValues = false, kHasMagnitudes = false, kNarrowSums = false;
INLINE Integers dot4(Integers sum, Integers quantised, Integers weights) { return _mm256_dpbusd_avx_epi32(sum, quantised, weights); }
INLINE Integers dot4(Integers sum, Integers quantised, Integers, Integers weights) { return dot4(sum, quantised, weights); }
#else
// The signs of the inputs go to the weights: pairs of |input| * weight stay below 2 * 128 * 127, so
// that the 16-bit sums of the instruction do not saturate. To make magnitudes takes a ninth of a
// product's time, so that those of inputs are stored.
constexpr bool kSignedValues = true, kHasMagnitudes = true;
INLINE Integers dot4(Integers sum, Integers quantised, Integers magnitudes, Integers weights) {
  const Integers pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(weights, quantised));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
INLINE Integers dot4(Integers sum, Integers quantised, Integers weights) {
  return dot4(sum, quantised, _mm256_abs_epi8(quantised), weights);
}
// Sums of 16 bits of products of unsigned numbers of 4 bits: two a channel, each of at most 16 products, which
// stay below 16 * 15 * 127. `wide_sums` makes them one of 32 bits.
constexpr bool kNarrowSums = true;
INLINE Integers narrow_dot4(Integers sums, Integers columns, Integers inputs) {
  return _mm256_add_epi16(sums, _mm256_maddubs_epi16(columns, inputs));
}
INLINE Integers wide_sums(Integers sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
#endif

INLINE void store_bytes(int8_t* p, Integers v, int n) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const int64_t eight = _mm_cvtsi128_si64(_mm_packs_epi16(words, words));
  std::memcpy(p, &eight, n >= 8 ? 8 : n);
}

// Halves of bytes as numbers: 0 to 15.
INLINE Integers lower_halves(Integers bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
INLINE Integers upper_halves(Integers bytes) { return lower_halves(_mm256_srli_epi16(bytes, 4)); }

INLINE void store_quantised(uint8_t* p, Integers quantised, int n) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(quantised), _mm256_extracti128_si256(quantised, 1));
  __m128i bytes = _mm_packs_epi16(words, words);
  if (!kSignedValues) bytes = _mm_xor_si128(bytes, _mm_set1_epi8(char(0x80)));  // adds 128
  const int64_t eight = _mm_cvtsi128_si64(bytes);
  std::memcpy(p, &eight, n >= 8 ? 8 : n);
}

#endif

}  // namespace

#endif

namespace {

// Return e**x for x <= 0, to about 2 units in the last place (Cephes' expf); e**-87 for anything less.
INLINE Floats exponential(Floats x) {
  x = max(all(-87.0f), x);  // in this order a NaN stays one
  const Floats n = round(mul(x, all(1.44269504f)));
  Floats r = fma(n, all(-0.693359375f), x);
  r = fma(n, all(2.12194440e-4f), r);
  Floats p = all(1.9875691500e-4f);
  p = fma(p, r, all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = fma(mul(r, r), p, add(r, all(1.0f)));
  return scale_by_power(p, n);
}

// Return a polynomial of x * x with the coefficients of the highest power first.
template <int Number>
INLINE Floats polynomial(Floats square, const float (&coefficients)[Number]) {
  Floats sum = all(coefficients[0]);
  for (int i = 1; i < Number; i++) sum = fma(sum, square, all(coefficients[i]));
  return sum;
}

// The rational functions of ONNX Runtime's Tanh and Sigmoid (MLAS), to 3e-7 of the exact values.
INLINE Floats hyperbolic_tangent(Floats x) {
  constexpr float kAbove[] = {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f,
                              5.12229709037114e-08f,  1.48572235717979e-05f, 6.37261928875436e-04f,
                              4.89352455891786e-03f};
  constexpr float kBelow[] = {1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f,
                              4.89352518554385e-03f};
  x = min(all(9), max(all(-9), x));
  const Floats square = mul(x, x);
  return div(mul(x, polynomial(square, kAbove)), polynomial(square, kBelow));
}

INLINE Floats sigmoid(Floats x) {
  constexpr float kAbove[] = {4.37031012579801e-11f, 1.15627324459942e-07f, 6.08574864600143e-05f,
                              8.51377133304701e-03f, 2.48287947061529e-01f};
  constexpr float kBelow[] = {6.10247389755681e-13f, 5.76102136993427e-09f, 6.29106785017040e-06f,
                              1.70198817374094e-03f, 1.16817656904453e-01f, 9.93151921023180e-01f};
  x = min(all(18), max(all(-18), x));
  const Floats square = mul(x, x);
  const Floats y = add(div(mul(x, polynomial(square, kAbove)), polynomial(square, kBelow)), all(0.5f));
  return min(all(1), max(all(0), y));
}

}  // namespace
