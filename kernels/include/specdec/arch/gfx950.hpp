// gfx950: the only file that names the target's builtins, address spaces and cache bits.
#pragma once

#include "specdec/types.hpp"

#define SPECDEC_KERNEL                                                                                     \
  extern "C" __attribute__((global)) void __attribute__((amdgpu_flat_work_group_size(512, 512),             \
                                                         amdgpu_waves_per_eu(2, 2)))
#define SPECDEC_DEVICE __attribute__((device)) inline __attribute__((always_inline))
#define SPECDEC_SHARED __attribute__((shared))

namespace specdec::arch {

using Bf16x2 = __bf16 __attribute__((ext_vector_type(2)));
using Bf16x8 = __bf16 __attribute__((ext_vector_type(8)));
using Float2 = float __attribute__((ext_vector_type(2)));
using Float4 = float __attribute__((ext_vector_type(4)));
using Uint2 = uint32_t __attribute__((ext_vector_type(2)));
using Uint4 = uint32_t __attribute__((ext_vector_type(4)));
using Int8 = int32_t __attribute__((ext_vector_type(8)));

// Memory that no kernel writes while it runs, read through the scalar cache: its loads wait for no weights.
template <class T>
using Constant = const T __attribute__((address_space(4)));
template <class T>
using Global = T __attribute__((address_space(1)));

template <class T>
SPECDEC_DEVICE Constant<T>* constant(uint64_t address) {
  return reinterpret_cast<Constant<T>*>(address);
}
template <class T>
SPECDEC_DEVICE Global<T>* global(uint64_t address) {
  return reinterpret_cast<Global<T>*>(address);
}

// The explicit arguments. The empty asm makes each call a fresh read, so that a field lives in scalar registers from
// its use to its use and not through the whole kernel, where it would spill.
template <class T>
SPECDEC_DEVICE Constant<T>& kernel_arguments() {
  auto* pointer = (Constant<T>*)__builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(pointer));
  return *pointer;
}
template <class T>
SPECDEC_DEVICE Constant<T>* reread(Constant<T>* pointer) {
  asm volatile("" : "+s"(pointer));
  return pointer;
}
// The same for values: what is computed from them before is forgotten, not kept.
SPECDEC_DEVICE void forget_uniform(uint32_t& value) { asm volatile("" : "+s"(value)); }
SPECDEC_DEVICE void forget(uint32_t& value) { asm volatile("" : "+v"(value)); }
// Gives registers that a later branch fills a definition, at no instruction: else they would stay live from the
// previous round of the loop around them.
SPECDEC_DEVICE void define(Uint4& value) { asm volatile("" : "=v"(value)); }
SPECDEC_DEVICE void define(uint32_t& value) { asm volatile("" : "=v"(value)); }

SPECDEC_DEVICE uint32_t workgroup_id() { return __builtin_amdgcn_workgroup_id_x(); }
SPECDEC_DEVICE uint32_t thread_id() { return __builtin_amdgcn_workitem_id_x(); }
SPECDEC_DEVICE uint32_t uniform(uint32_t value) { return __builtin_amdgcn_readfirstlane(value); }
SPECDEC_DEVICE uint32_t read_lane(uint32_t value, uint32_t lane) { return __builtin_amdgcn_readlane(value, lane); }
SPECDEC_DEVICE float read_lane(float value, uint32_t lane) {
  return __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(uint32_t, value), lane));
}
SPECDEC_DEVICE uint64_t ballot(bool value) { return __builtin_amdgcn_ballot_w64(value); }

// Hardware functions, about one ulp.
SPECDEC_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
SPECDEC_DEVICE float rcp(float x) { return __builtin_amdgcn_rcpf(x); }
SPECDEC_DEVICE float rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
SPECDEC_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// 100 MHz.
SPECDEC_DEVICE uint64_t clock() { return __builtin_amdgcn_s_memrealtime(); }
SPECDEC_DEVICE void sleep() { __builtin_amdgcn_s_sleep(1); }

// Barrier of the workgroup that orders LDS and leaves vector memory in flight.
SPECDEC_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
// This wave's vector memory operations have been performed.
SPECDEC_DEVICE void wait_memory() {
  asm volatile("" ::: "memory");
  __builtin_amdgcn_s_waitcnt(0x0F70);  // vmcnt(0), a builtin so that the compiler counts from here
  asm volatile("" ::: "memory");
}
// Keeps the compiler from moving memory operations across.
SPECDEC_DEVICE void memory_fence() { asm volatile("" ::: "memory"); }

// Where a store must be seen, and past which caches a load must look.
enum class Scope : int {
  kWave = 0,     // ordinary memory of earlier or later launches
  kStream = 2,   // weights: read once, kept out of the caches
  kDevice = 16,  // other workgroups of this launch
};

// A span of memory behind a buffer descriptor: loads past `bytes` give zero, stores past it are dropped.
struct Span {
  __amdgpu_buffer_rsrc_t resource;

  SPECDEC_DEVICE Span(uint64_t address, uint32_t bytes)
      : resource(__builtin_amdgcn_make_buffer_rsrc((Global<void>*)address, 0, bytes, 0x00027000)) {}

  template <Scope kScope>
  SPECDEC_DEVICE Uint4 load16(uint32_t offset, uint32_t uniform_offset = 0) const {
    return __builtin_amdgcn_raw_buffer_load_b128(resource, offset, uniform_offset, int(kScope));
  }
  template <Scope kScope>
  SPECDEC_DEVICE uint32_t load4(uint32_t offset, uint32_t uniform_offset = 0) const {
    return __builtin_amdgcn_raw_buffer_load_b32(resource, offset, uniform_offset, int(kScope));
  }
  template <Scope kScope>
  SPECDEC_DEVICE uint16_t load2(uint32_t offset) const {
    return __builtin_amdgcn_raw_buffer_load_b16(resource, offset, 0, int(kScope));
  }
  template <Scope kScope>
  SPECDEC_DEVICE void store4(uint32_t offset, uint32_t value) const {
    __builtin_amdgcn_raw_buffer_store_b32(value, resource, offset, 0, int(kScope));
  }
  template <Scope kScope>
  SPECDEC_DEVICE void store1(uint32_t offset, uint8_t value) const {
    __builtin_amdgcn_raw_buffer_store_b8(value, resource, offset, 0, int(kScope));
  }
};

// Sets bits of a word in LDS, atomically among the workgroup's lanes.
SPECDEC_DEVICE void or_shared(uint32_t& word, uint32_t bits) {
  __hip_atomic_fetch_or(&word, bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

// Words that other workgroups (device) or ranks (system) poll: one instruction each, seen whole.
SPECDEC_DEVICE void store_flag(uint64_t address, uint32_t tag) {
  __hip_atomic_store(global<uint32_t>(address), tag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
SPECDEC_DEVICE void store_pair(uint64_t address, uint32_t payload, uint32_t tag) {
  __hip_atomic_store(global<uint64_t>(address), uint64_t(tag) << 32 | payload, __ATOMIC_RELAXED,
                     __HIP_MEMORY_SCOPE_SYSTEM);
}
SPECDEC_DEVICE uint64_t load_pair(uint64_t address) {
  return __hip_atomic_load(global<uint64_t>(address), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
SPECDEC_DEVICE void store_system(uint64_t address, uint32_t value) {
  __hip_atomic_store(global<uint32_t>(address), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
SPECDEC_DEVICE uint32_t load_system(uint64_t address) {
  return __hip_atomic_load(global<uint32_t>(address), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
// Stores a word and returns what was there, in one step for every agent.
SPECDEC_DEVICE uint32_t exchange_system(uint64_t address, uint32_t value) {
  return __hip_atomic_exchange(global<uint32_t>(address), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

// D[16 weight rows][16 tokens] += A[16 rows][32] B[32][16 tokens]; a lane holds 8 of K at 8 * (lane / 16) of row and
// token lane % 16, and four results at rows 4 * (lane / 16) + i of token lane % 16.
SPECDEC_DEVICE Float4 mfma(Bf16x8 weights, Bf16x8 tokens, Float4 sum) {
  return __builtin_amdgcn_mfma_f32_16x16x32_bf16(weights, tokens, sum, 0, 0, 0);
}
// The same over 128 of K in MXFP4: a lane holds 32 of K at block lane / 16; byte `kByte` of each scale word is its
// block's E8M0 scale.
template <int kWeightByte, int kTokenByte>
SPECDEC_DEVICE Float4 mfma_fp4(Uint4 weights, Uint4 tokens, Float4 sum, uint32_t weight_scales, uint32_t token_scales) {
  const Int8 a = {int(weights.x), int(weights.y), int(weights.z), int(weights.w), 0, 0, 0, 0};
  const Int8 b = {int(tokens.x), int(tokens.y), int(tokens.z), int(tokens.w), 0, 0, 0, 0};
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, sum, 4, 4, kWeightByte, int(weight_scales),
                                                          kTokenByte, int(token_scales));
}

// Called on a matrix product before any divergent branch. A matrix instruction reads every lane whatever EXEC says; the
// compiler sinks it, with the vector instructions that make its operands, into a branch that alone uses the result, and
// there the lanes outside the branch would hold stale operands.
SPECDEC_DEVICE Float4 finish(Float4 sum) {
  asm volatile("" : "+v"(sum));
  return sum;
}

// Two values to two E2M1 nibbles in byte `kByte` of `word`; `scale` is a power of two.
template <int kByte>
SPECDEC_DEVICE uint32_t pack_fp4(uint32_t word, Bf16x2 pair, float scale) {
  return __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(word, pair, scale, kByte);
}
template <int kByte>
SPECDEC_DEVICE uint32_t pack_fp4(uint32_t word, Float2 pair, float scale) {
  return __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, pair.x, pair.y, scale, kByte);
}

// The value that lane `from` holds; that lane must be active.
SPECDEC_DEVICE uint32_t shuffle(uint32_t value, uint32_t from) {
  return __builtin_amdgcn_ds_bpermute(int(from * 4), int(value));
}
// The value of the partner lane in a butterfly over 2, 4, 8 or 16 lanes. From 8 on the partner mirrors, which is as
// good once the lanes of each half agree.
template <int kWidth>
SPECDEC_DEVICE uint32_t partner(uint32_t value) {
  static_assert(kWidth == 2 || kWidth == 4 || kWidth == 8 || kWidth == 16, "a butterfly inside one DPP row");
  constexpr int kControl = kWidth == 2 ? 0xB1 : kWidth == 4 ? 0x4E : kWidth == 8 ? 0x141 : 0x140;
  return __builtin_amdgcn_update_dpp(value, value, kControl, 0xF, 0xF, true);
}
// Both halves of each 32 lanes (or of the wave), each lane's own and its partner's, in an order that all lanes share.
SPECDEC_DEVICE Uint2 halves32(uint32_t value) {
  const auto swapped = __builtin_amdgcn_permlane16_swap(value, value, false, false);
  return {swapped[0], swapped[1]};
}
SPECDEC_DEVICE Uint2 halves64(uint32_t value) {
  const auto swapped = __builtin_amdgcn_permlane32_swap(value, value, false, false);
  return {swapped[0], swapped[1]};
}

}  // namespace specdec::arch
