// Ways to reach memory: buffers with bounds, LDS DMA, atomics.
#define GLOBAL extern "C" __attribute__((global))
#define SHARED __attribute__((shared))
typedef unsigned u32;
typedef unsigned long long u64;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef __attribute__((address_space(1))) u32 Word;
typedef __attribute__((address_space(1))) u64 Wide;
typedef __attribute__((address_space(3))) void Local;

#define RESOURCE(address, bytes) \
  __builtin_amdgcn_make_buffer_rsrc((__attribute__((address_space(1))) void*)(address), 0, bytes, 0x00027000)

// A lane copies 16 bytes through buffers of `bytes` bytes: dwords past the end read as 0 and are not stored.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(64, 64))) bounds(u64 in, u64 out, u32 bytes) {
  const u32 lane = __builtin_amdgcn_workitem_id_x();
  const auto source = RESOURCE(in, bytes);
  const auto all = RESOURCE(out, 0xffffffffu);
  const auto target = RESOURCE(out + 1024, bytes);
  const u32x4 value = __builtin_amdgcn_raw_buffer_load_b128(source, lane * 16, 0, 0);
  __builtin_amdgcn_raw_buffer_store_b128(value, all, lane * 16, 0, 0);
  const u32x4 ones = {1, 1, 1, 1};
  __builtin_amdgcn_raw_buffer_store_b128(ones, target, lane * 16, 0, 0);
}

SHARED u32x4 tile[256];

// 16-byte LDS DMA of one tile a wave, then a rotated read.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(256, 256))) dma(u64 in, u64 out) {
  const u32 item = __builtin_amdgcn_workitem_id_x();
  const u32 wave = __builtin_amdgcn_readfirstlane(item / 64);
  const auto source = RESOURCE(in, 0xffffffffu);
  __builtin_amdgcn_raw_ptr_buffer_load_lds(source, (Local*)(tile + wave * 64), 16, item * 16, 0, 0, 2);
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  const u32x4 value = tile[(item + 100) % 256];
  __builtin_amdgcn_raw_buffer_store_b128(value, RESOURCE(out, 0xffffffffu), item * 16, 0, 0);
}

GLOBAL void __attribute__((amdgpu_flat_work_group_size(128, 128))) atomics(u64 out, u64 old) {
  const u32 item = __builtin_amdgcn_workitem_id_x() + 128 * __builtin_amdgcn_workgroup_id_x();
  Word* const words = (Word*)out;
  ((Word*)old)[item] = __hip_atomic_fetch_add(words, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_max(words + 1, item, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_add((Wide*)out + 1, 1ull << 32, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  u32 expected = 5;
  __hip_atomic_compare_exchange_strong(words + 4, &expected, item, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_AGENT);
}

// A dependent chain of vector and matrix work in registers, and a stream of 16-byte loads: for the speed figure.
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef float f32x4 __attribute__((ext_vector_type(4)));

GLOBAL void __attribute__((amdgpu_flat_work_group_size(512, 512), amdgpu_waves_per_eu(2, 2)))
stream(u64 weights, u64 out, u32 tiles, u32 steps) {
  const u32 item = __builtin_amdgcn_workitem_id_x(), lane = item & 63;
  const u32 wave = __builtin_amdgcn_readfirstlane(item >> 6);
  const auto source = RESOURCE(weights, 0xffffffffu);
  const u32 row_bytes = steps * 512;
  const u32 offset = (lane & 15) * row_bytes + (lane >> 4) * 16 + wave * steps * 64;
  u32x4 ring[8];
#pragma unroll
  for (u32 s = 0; s < 8; ++s) ring[s] = __builtin_amdgcn_raw_buffer_load_b128(source, offset + s * 64, 0, 2);
  f32x4 sum = {0, 0, 0, 0};
  const bf16x8 ones = {1, 1, 1, 1, 1, 1, 1, 1};
  for (u32 tile = 0; tile < tiles; ++tile) {
    for (u32 step = 0; step < steps; step += 8) {
#pragma unroll
      for (u32 s = 0; s < 8; ++s) {
        sum = __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(bf16x8, ring[s]), ones, sum, 0, 0, 0);
        ring[s] = __builtin_amdgcn_raw_buffer_load_b128(source, offset + (step + s) * 64, tile * 16 * row_bytes, 2);
      }
    }
    __builtin_amdgcn_s_barrier();
  }
  ((__attribute__((address_space(1))) float*)out)[(__builtin_amdgcn_workgroup_id_x() * 512 + item)] =
      sum[0] + sum[1] + sum[2] + sum[3];
}

GLOBAL void __attribute__((amdgpu_flat_work_group_size(512, 512))) mix(u64 in, u64 out, u32 rounds) {
  const u32 item = __builtin_amdgcn_workitem_id_x();
  u32 a = ((Word*)in)[item], b = item;
  float x = item;
  for (u32 round = 0; round < rounds; ++round) {
    a = (a << 5 | a >> 27) + b;
    b = (b ^ a) * 2654435761u;
    x = __builtin_fmaf(x, 0.5f, 1.0f);
    a += (b > round) ? a >> 3 : b & 0xff;
  }
  ((Word*)out)[item] = a + b + (u32)x;
}
