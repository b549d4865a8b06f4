// Cross-lane moves: DPP, permutes through LDS hardware, swaps, lane reads, votes.
#define KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 512)))
typedef unsigned u32;
typedef unsigned long long u64;

template <int kCtrl, int kRow = 0xf, int kBank = 0xf>
static inline __attribute__((device)) float shifted(float x) {
  const int bits = __builtin_bit_cast(int, x);
  return __builtin_bit_cast(float, __builtin_amdgcn_update_dpp(0, bits, kCtrl, kRow, kBank, false));
}

KERNEL void reduce(float* out, const float* in) {
  float x = in[__builtin_amdgcn_workitem_id_x()];
  x += shifted<0xb1>(x);
  x += shifted<0x4e>(x);
  x += shifted<0x104, 0xf, 0x5>(x);
  x += shifted<0x118, 0xf, 0xc>(x);
  x = __builtin_fmaxf(x, shifted<0x121>(x));
  x *= shifted<0x140>(x) + shifted<0x141>(x);
  x += shifted<0x142, 0xa>(x);
  x += shifted<0x143, 0xc>(x);
  x += shifted<0x153>(x);
  x -= shifted<0x138>(x);
  *out = x;
}

KERNEL void permutes(u32* out, const u32* in, int n) {
  const u32 i = __builtin_amdgcn_workitem_id_x();
  u32 x = in[i];
  x += __builtin_amdgcn_ds_bpermute(i * 4 ^ 32, x);
  x += __builtin_amdgcn_ds_permute(i * 4 ^ 64, x);
  x += __builtin_amdgcn_ds_swizzle(x, 0x401f);
  auto pair = __builtin_amdgcn_permlane16_swap(x, i, false, false);
  x = pair[0] + pair[1];
  auto halves = __builtin_amdgcn_permlane32_swap(x, i, false, false);
  x ^= halves[0] * halves[1];
  x += __builtin_amdgcn_readlane(x, n) + __builtin_amdgcn_readlane(x, 3);
  const u64 vote = __builtin_amdgcn_ballot_w64(x > 7);
  if (vote == 0) return;
  x += __builtin_amdgcn_mov_dpp(x, 0x1b, 15, 15, true);
  out[i] = x + __builtin_popcountll(vote) + __builtin_amdgcn_readfirstlane(x);
}

KERNEL void diverge(u32* out, const u32* in, u32 n) {
  const u32 i = __builtin_amdgcn_workitem_id_x();
  u32 x = in[i], steps = 0;
  while (x != 1 && steps < n) {
    if (x & 1) {
      x = 3 * x + 1;
    } else if (x > 1000) {
      x >>= 2;
    } else {
      x >>= 1;
    }
    ++steps;
  }
  switch (x & 3) {
    case 0: steps += in[x]; break;
    case 1: steps ^= 0x55; break;
    case 2: out[x] = 1; break;
    default: __builtin_amdgcn_s_sleep(2);
  }
  __builtin_amdgcn_s_setprio(1);
  out[i] = steps + (u32)__builtin_amdgcn_s_memrealtime() + __builtin_amdgcn_s_getreg(4 | 31 << 11);
}
