// Rounding, reductions over lanes, and the activation functions (spec/numerics.md §2 and §5).
#pragma once

#include "specdec/abi_generated.hpp"
#include "specdec/arch/gfx950.hpp"

namespace specdec {

using arch::Bf16x2;
using arch::Bf16x8;
using arch::Float2;
using arch::Float4;
using arch::Scope;
using arch::Span;
using arch::Uint2;
using arch::Uint4;

constexpr float kLog2E = 1.44269504088896340736f;

// bf16 words hold the even column in the low half.
SPECDEC_DEVICE float bf16_to_float(uint32_t bits) { return __builtin_bit_cast(float, bits << 16); }
SPECDEC_DEVICE Float2 widen(uint32_t pair) {
  return {bf16_to_float(pair), __builtin_bit_cast(float, pair & 0xFFFF0000u)};
}
SPECDEC_DEVICE uint32_t narrow(Float2 value) {
  const Bf16x2 pair = {__bf16(value.x), __bf16(value.y)};
  return __builtin_bit_cast(uint32_t, pair);
}
SPECDEC_DEVICE float round_bf16(float value) { return float(__bf16(value)); }

SPECDEC_DEVICE uint32_t as_bits(float value) { return __builtin_bit_cast(uint32_t, value); }
SPECDEC_DEVICE float as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Butterflies: every lane ends with the same bits, because both operands of each step commute.
struct Sum {
  SPECDEC_DEVICE uint32_t operator()(uint32_t a, uint32_t b) const { return as_bits(as_float(a) + as_float(b)); }
};
struct MaxFloat {
  SPECDEC_DEVICE uint32_t operator()(uint32_t a, uint32_t b) const {
    return as_bits(__builtin_fmaxf(as_float(a), as_float(b)));
  }
};
struct Max {
  SPECDEC_DEVICE uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};
struct Min {
  SPECDEC_DEVICE uint32_t operator()(uint32_t a, uint32_t b) const { return a < b ? a : b; }
};

// Over aligned groups of kLanes lanes.
template <uint32_t kLanes, class Op>
SPECDEC_DEVICE uint32_t reduce(uint32_t value, Op op) {
  static_assert(kLanes == 4 || kLanes == 16 || kLanes == 32 || kLanes == 64, "a power of two that stages use");
  value = op(value, arch::partner<2>(value));
  value = op(value, arch::partner<4>(value));
  if constexpr (kLanes >= 16) {
    value = op(value, arch::partner<8>(value));
    value = op(value, arch::partner<16>(value));
  }
  if constexpr (kLanes >= 32) {
    const Uint2 halves = arch::halves32(value);
    value = op(halves.x, halves.y);
  }
  if constexpr (kLanes >= 64) {
    const Uint2 halves = arch::halves64(value);
    value = op(halves.x, halves.y);
  }
  return value;
}
template <uint32_t kLanes>
SPECDEC_DEVICE float sum_lanes(float value) {
  return as_float(reduce<kLanes>(as_bits(value), Sum{}));
}

SPECDEC_DEVICE float sigmoid(float x) { return arch::rcp(1.0f + arch::exp2(-kLog2E * x)); }
SPECDEC_DEVICE float tanh(float x) {
  const float e = arch::exp2(-2.0f * kLog2E * __builtin_fabsf(x));
  return __builtin_copysignf((1.0f - e) * arch::rcp(1.0f + e), x);
}
// SiTU, beta 4 and linear beta 25, as the routed experts form it ...
SPECDEC_DEVICE float situ_routed(float gate, float up) {
  return 4.0f * tanh(gate * 0.25f) * sigmoid(gate) * 25.0f * tanh(up * 0.04f);
}
// ... and as the shared experts do.
SPECDEC_DEVICE float situ_shared(float gate, float up) {
  return 2.0f * tanh(gate * 0.25f) * (1.0f + tanh(gate * 0.5f)) * (25.0f * tanh(up * 0.04f));
}

// E8M0 code of the smallest power of two at or above amax / 6, so that no E2M1 value saturates (§5.5).
SPECDEC_DEVICE uint32_t mx_code(float amax) {
  const uint32_t code = (as_bits(amax * (1.0f / 6.0f)) + 0x7FFFFFu) >> 23 & 0xFFu;
  return code < 254u ? code : 254u;
}
// The scale of a code; a zero group has code 0, whose power of two is below every normal number.
SPECDEC_DEVICE float mx_scale(uint32_t code) { return as_float(code == 0 ? 0x00400000u : code << 23); }

}  // namespace specdec
