// Kernels for the driver's tests: arithmetic, a wait for the other rank, and two that go wrong.
#define GLOBAL extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(64, 64))) void
typedef unsigned u32;
typedef unsigned long long u64;
typedef __attribute__((address_space(1))) u32 Word;
typedef __attribute__((address_space(1))) u64 Pair;

__attribute__((device)) inline u32 index() {
  return __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
}

// out[i] = in[i] * 3 + term
GLOBAL affine(u64 in, u64 out, u32 term) {
  ((Word*)out)[index()] = ((Word*)in)[index()] * 3 + term;
}

// Sends its values to the peer and waits for the peer's, round after round: both must run at once.
GLOBAL trade(u64 mine, u64 peers, u64 out, u32 first, u32 rounds) {
  u32 value = first + index();
  for (u32 round = 1; round <= rounds; ++round) {
    const u64 parity = (round & 1) * 512;
    __hip_atomic_store((Pair*)(peers + parity) + index(), (u64)round << 32 | value, __ATOMIC_RELAXED,
                       __HIP_MEMORY_SCOPE_SYSTEM);
    u64 seen;
    while (true) {
      seen = __hip_atomic_load((Pair*)(mine + parity) + index(), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
      if ((u32)(seen >> 32) == round) break;
      __builtin_amdgcn_s_sleep(1);
    }
    value = value * 5 + (u32)seen;
  }
  ((Word*)out)[index()] = value;
}

// Waits for a word that nobody writes.
GLOBAL stuck(u64 region) {
  while (__hip_atomic_load((Word*)region, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0) {
    __builtin_amdgcn_s_sleep(1);
  }
}

// Stores far behind its memory.
GLOBAL wild(u64 region) { ((Word*)(region + (1ull << 40)))[index()] = 1; }
