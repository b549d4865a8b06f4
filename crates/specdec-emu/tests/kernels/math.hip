// Arithmetic: every vector and scalar ALU that clang picks for integer, bit and float expressions.
#define KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 512)))
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned short u16;
typedef unsigned char u8;

static inline __attribute__((device)) u32 lane() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}

KERNEL void floats(float* out, const float* in, float scale, int n) {
  const u32 i = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x();
  const float a = in[i], b = in[i + n], c = in[i + 2 * n];
  float r = a / b + __builtin_amdgcn_rcpf(c) * __builtin_amdgcn_rsqf(a) - __builtin_sqrtf(b);
  r += __builtin_amdgcn_exp2f(a) * __builtin_amdgcn_logf(c) + __builtin_fmaf(a, b, c) + __builtin_fabsf(r - c);
  r = __builtin_fmaxf(__builtin_fminf(r, b), -a) + __builtin_amdgcn_fmed3f(a, b, c) + __builtin_floorf(c);
  r += __builtin_truncf(a) + __builtin_rintf(b) + __builtin_ceilf(c) + __builtin_amdgcn_fractf(a);
  r += __builtin_amdgcn_ldexpf(a, n) + __builtin_amdgcn_sinf(a) + __builtin_amdgcn_cosf(b);
  r += (float)(int)a + (float)(u32)b + __builtin_amdgcn_frexp_mantf(c) + (float)__builtin_amdgcn_frexp_expf(c);
  r = r > scale ? r * 3.14159274f : r + a * 2.71828175f;
  r = __builtin_isnan(r) ? 0.5f : r;
  r = __builtin_amdgcn_classf(r, 0x204) ? scale : r;
  out[i] = r;
}

KERNEL void packed(float* out, const float* in) {
  typedef float f2 __attribute__((ext_vector_type(2)));
  const u32 i = __builtin_amdgcn_workitem_id_x();
  const f2 a = ((const f2*)in)[i], b = ((const f2*)in)[i + 64], c = {in[0], in[1]};
  f2 r = a * b + c;
  r = __builtin_elementwise_fma(r, a.yx, -b) * 2.0f - c.yx;
  ((f2*)out)[i] = r;
}

KERNEL void integers(u32* out, const u32* in, u32 d, int shift) {
  const u32 i = lane();
  const u32 a = in[i], b = in[i + 64], c = in[i + 128];
  u32 r = a / d + b % c + (a * b >> shift) + ((int)a / (int)b) + (u32)(((u64)a * b) >> 32);
  r ^= __builtin_popcount(a) + __builtin_clz(b | 1) + __builtin_ctz(c | 1) + __builtin_bitreverse32(a);
  r += (a >> 5 & 0x1f) + ((int)(b << 11) >> 25) + (a << 4 | b) + (a & b | c) + (a ^ b ^ c) + ~(a ^ b);
  r += __builtin_amdgcn_perm(a, b, 0x07050301) + __builtin_amdgcn_alignbit(a, b, 7) + ((a + b) << 3) + (a + b + c);
  r += a > b ? a : b;
  r += (int)a < (int)c ? (int)a : (int)c;
  r += ((a & 0xffffff) * (b & 0xffffff)) + ((a & c) | (b & ~c)) + __builtin_amdgcn_ubfe(a, d, 5);
  r += __builtin_amdgcn_sad_u8(a, b, c) + __builtin_amdgcn_sbfe(b, 3, d);
  out[i] = r;
}

KERNEL void wide(u64* out, const u64* in, u64 d, u32 shift) {
  const u32 i = lane();
  const u64 a = in[i], b = in[i + 64];
  u64 r = a * b + (a << shift) + (b >> shift) + ((i64)a >> shift) + (a + d) - (b & d);
  r += (i64)a < (i64)b ? a : b;
  r ^= a >= d ? ~a : b | 1;
  r += a / d;
  out[i] = r;
}

KERNEL void small(u16* out, const u16* in, const u8* bytes, u16 k) {
  const u32 i = lane();
  const u16 a = in[i], b = in[i + 64];
  const u8 x = bytes[i], y = bytes[i + 64];
  u16 r = a * b + k - (a >> 3) + (b << 2) + (u16)(x * y);
  r += a > b ? a : b;
  r += (short)a < (short)k ? a : k;
  r ^= (u16)((u8)a * (u8)(b >> 8));
  out[i] = r + (u16)((float)x * 0.25f);
}

KERNEL void uniform(u64* out, u32 a, u32 b, u64 c, int n) {
  u64 r = c;
  for (int i = 0; i < n; ++i) {
    r = r * a + (r >> (b & 63)) + (u32)(((u64)a * b) >> 32);
    r ^= (u64)__builtin_popcountll(r) + __builtin_clzll(r | 1) + __builtin_ctz(a | 1) + (a << 2) + b;
    a = a > b ? a - b : (u32)__builtin_amdgcn_readfirstlane(a ^ i);
    if (r & 0x10) b += ((int)b >> 4) + (b & ~a) + __builtin_bitreverse32(b);
    b = (int)b < n ? (u32)((int)a < -5 ? -(int)a : (int)a) : b | 0x100;
  }
  *out = r + a + b + __builtin_amdgcn_workgroup_id_y();
}
