// Vectors of Arm's NEON (Advanced SIMD), included by vectors.h on aarch64.
//
// A vector is a pair of registers, eight lanes as with AVX2: sums have the same order, so that every
// result has the same bits on both. The 32 registers hold as many of them as AVX2's 16.
#pragma once

#include <arm_neon.h>

#include "kernels.h"

namespace {

constexpr int kLanes = 8;
constexpr bool kSignedValues = true, kHasMagnitudes = false, kNarrowSums = false;

struct Floats {
  float32x4_t low, high;
};

struct Integers {  // of 32 bits, or four times as many bytes
  int32x4_t low, high;
};

using FourFloats = float32x4_t;

INLINE Floats load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
INLINE void store(float* p, Floats v) {
  vst1q_f32(p, v.low);
  vst1q_f32(p + 4, v.high);
}
INLINE void store_four(float* p, FourFloats v) { vst1q_f32(p, v); }
INLINE float first_of(FourFloats v) { return vgetq_lane_f32(v, 0); }
INLINE Floats load_first(const float* p, int n) {
  if (n >= kLanes) return load(p);
  float lanes[kLanes] = {};
  for (int i = 0; i < n; i++) lanes[i] = p[i];
  return load(lanes);
}
INLINE void store_first(float* p, Floats v, int n) {
  if (n >= kLanes) return store(p, v);
  float lanes[kLanes];
  store(lanes, v);
  for (int i = 0; i < n; i++) p[i] = lanes[i];
}

INLINE Floats all(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
INLINE Floats zeros() { return all(0); }
INLINE Floats add(Floats a, Floats b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
INLINE Floats sub(Floats a, Floats b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
INLINE Floats mul(Floats a, Floats b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
INLINE Floats div(Floats a, Floats b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
INLINE Floats absolute(Floats a) { return {vabsq_f32(a.low), vabsq_f32(a.high)}; }
INLINE Floats fma(Floats a, Floats b, Floats c) {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
INLINE Floats round(Floats a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }

// Arm's own maximum of a number and NaN is NaN. That of x86 is `b`, as with these comparisons.
INLINE Floats max(Floats a, Floats b) {
  return {vbslq_f32(vcgtq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcgtq_f32(a.high, b.high), a.high, b.high)};
}
INLINE Floats min(Floats a, Floats b) {
  return {vbslq_f32(vcltq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcltq_f32(a.high, b.high), a.high, b.high)};
}

INLINE Floats keep_first(Floats v, int n, float rest) {
  if (n >= kLanes) return v;
  constexpr int32_t kIndices[] = {0, 1, 2, 3, 4, 5, 6, 7};
  const int32x4_t number = vdupq_n_s32(n);
  const float32x4_t otherwise = vdupq_n_f32(rest);
  return {vbslq_f32(vcgtq_s32(number, vld1q_s32(kIndices)), v.low, otherwise),
          vbslq_f32(vcgtq_s32(number, vld1q_s32(kIndices + 4)), v.high, otherwise)};
}
INLINE Floats zero_where_less(Floats v, Floats a, Floats b) {
  const auto zero = [](float32x4_t value, uint32x4_t is_less) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), is_less));
  };
  return {zero(v.low, vcltq_f32(a.low, b.low)), zero(v.high, vcltq_f32(a.high, b.high))};
}
INLINE bool any_not_less(Floats a, Floats b) {
  return vminvq_u32(vandq_u32(vcltq_f32(a.low, b.low), vcltq_f32(a.high, b.high))) == 0;
}
INLINE uint32_t greater_lanes(Floats a, Floats b) {
  constexpr uint8_t kBits[] = {1, 2, 4, 8, 16, 32, 64, 128};
  const uint16x8_t is_greater =
      vcombine_u16(vmovn_u32(vcgtq_f32(a.low, b.low)), vmovn_u32(vcgtq_f32(a.high, b.high)));
  return vaddv_u8(vand_u8(vmovn_u16(is_greater), vld1_u8(kBits)));
}

INLINE float sum_of(Floats v) {  // by halves
  const float32x4_t four = vaddq_f32(v.low, v.high);
  return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
INLINE int32_t sum_of(Integers v) { return vaddvq_s32(vaddq_s32(v.low, v.high)); }
INLINE Floats max_magnitude(Floats a, Floats b) {
  const auto greater = [](float32x4_t x, float32x4_t y) {
    return vreinterpretq_f32_s32(vmaxq_s32(vreinterpretq_s32_f32(x), vreinterpretq_s32_f32(vabsq_f32(y))));
  };
  return {greater(a.low, b.low), greater(a.high, b.high)};
}
INLINE float max_magnitude_of(Floats v) {
  return float_of(vmaxvq_s32(vmaxq_s32(vreinterpretq_s32_f32(v.low), vreinterpretq_s32_f32(v.high))));
}
INLINE float max_of(Floats v) {
  const auto greater = [](float a, float b) { return a > b ? a : b; };
  const Floats four = max({v.low, v.low}, {v.high, v.high});
  const float32x4_t lanes = four.low;
  return greater(greater(vgetq_lane_f32(lanes, 0), vgetq_lane_f32(lanes, 2)),
                 greater(vgetq_lane_f32(lanes, 1), vgetq_lane_f32(lanes, 3)));
}

// The sums of the lanes of four vectors. kFolds: the distances of lanes that are added, one after the other.
constexpr int kFolds[] = {1, 2, 4}, kNumFolds = 3;
INLINE FourFloats sums_of(Floats a, Floats b, Floats c, Floats d) {
  return vaddq_f32(vpaddq_f32(vpaddq_f32(a.low, b.low), vpaddq_f32(c.low, d.low)),
                   vpaddq_f32(vpaddq_f32(a.high, b.high), vpaddq_f32(c.high, d.high)));
}

INLINE Integers load_integers(const int32_t* p) { return {vld1q_s32(p), vld1q_s32(p + 4)}; }
INLINE Integers all_integers(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
INLINE Integers no_integers() { return all_integers(0); }
INLINE Integers plus(Integers a, Integers b) { return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)}; }
INLINE Floats to_floats(Integers v) { return {vcvtq_f32_s32(v.low), vcvtq_f32_s32(v.high)}; }
INLINE Integers to_integers(Floats v) { return {vcvtnq_s32_f32(v.low), vcvtnq_s32_f32(v.high)}; }
INLINE Floats scale_by_power(Floats p, Floats n) {
  const Integers exponent = plus(to_integers(n), all_integers(127));
  return mul(p, {vreinterpretq_f32_s32(vshlq_n_s32(exponent.low, 23)), vreinterpretq_f32_s32(vshlq_n_s32(exponent.high, 23))});
}

INLINE Integers load_bytes(const int8_t* p) {
  return {vreinterpretq_s32_s8(vld1q_s8(p)), vreinterpretq_s32_s8(vld1q_s8(p + 16))};
}
INLINE Floats load(const int8_t* p) {
  const int16x8_t words = vmovl_s8(vld1_s8(p));
  return to_floats({vmovl_s16(vget_low_s16(words)), vmovl_s16(vget_high_s16(words))});
}
INLINE Floats load(const uint16_t* p) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(p));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
INLINE Floats load_first(const uint16_t* p, int n) {
  uint16_t halves[kLanes] = {};
  for (int i = 0; i < n && i < kLanes; i++) halves[i] = p[i];
  return load(halves);
}
INLINE void store_halves(uint16_t* p, Floats v, int n) {
  uint16_t halves[kLanes];
  vst1q_u16(halves, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.low), v.high)));
  for (int i = 0; i < n && i < kLanes; i++) p[i] = halves[i];
}
INLINE Floats load_first(const int8_t* p, int n) {
  if (n >= kLanes) return load(p);
  int8_t lanes[kLanes] = {};
  for (int i = 0; i < n; i++) lanes[i] = p[i];
  return load(lanes);
}
INLINE void store_bytes(int8_t* p, Integers v, int n) {
  const int8x8_t bytes = vqmovn_s16(vcombine_s16(vqmovn_s32(v.low), vqmovn_s32(v.high)));
  if (n >= kLanes) return vst1_s8(p, bytes);
  int8_t lanes[kLanes];
  vst1_s8(lanes, bytes);
  for (int i = 0; i < n; i++) p[i] = lanes[i];
}
INLINE void store_quantised(uint8_t* p, Integers quantised, int n) {
  store_bytes(reinterpret_cast<int8_t*>(p), quantised, n);
}

// Add to each lane the products of its four bytes.
INLINE int32x4_t dot4(int32x4_t sum, int32x4_t a, int32x4_t b) {
  const int8x16_t left = vreinterpretq_s8_s32(a), right = vreinterpretq_s8_s32(b);
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sum, left, right);
#else
  // One side is at least -127, so that a pair of products is within 16 bits.
  const int16x8_t even = vmull_s8(vget_low_s8(left), vget_low_s8(right)), odd = vmull_high_s8(left, right);
  return vpadalq_s16(sum, vpaddq_s16(even, odd));
#endif
}
INLINE Integers dot4(Integers sum, Integers quantised, Integers weights) {
  return {dot4(sum.low, quantised.low, weights.low), dot4(sum.high, quantised.high, weights.high)};
}
INLINE Integers dot4(Integers sum, Integers quantised, Integers, Integers weights) { return dot4(sum, quantised, weights); }

// Halves of bytes as numbers: 0 to 15.
INLINE Integers lower_halves(Integers bytes) {
  const int32x4_t mask = vreinterpretq_s32_u8(vdupq_n_u8(15));
  return {vandq_s32(bytes.low, mask), vandq_s32(bytes.high, mask)};
}
INLINE Integers upper_halves(Integers bytes) {
  const auto shift = [](int32x4_t v) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(v), 4)); };
  return {shift(bytes.low), shift(bytes.high)};
}

}  // namespace
