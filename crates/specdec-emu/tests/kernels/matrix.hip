// The matrix unit, dot products, and the conversions around them: bf16, f16, fp8, fp4.
#define KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 512)))
typedef unsigned u32;
typedef __bf16 bf16x2 __attribute__((ext_vector_type(2)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef _Float16 f16x2 __attribute__((ext_vector_type(2)));
typedef _Float16 f16x8 __attribute__((ext_vector_type(8)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x8 __attribute__((ext_vector_type(8)));

KERNEL void dense(f32x4* out, const bf16x8* a, const bf16x8* b, const f16x8* h, f32x16* wide, const long* bytes) {
  const u32 i = __builtin_amdgcn_workitem_id_x();
  f32x4 acc = out[i];
#pragma unroll
  for (int k = 0; k < 4; ++k) acc = __builtin_amdgcn_mfma_f32_16x16x32_bf16(a[i + 64 * k], b[i + 64 * k], acc, 0, 0, 0);
  acc = __builtin_amdgcn_mfma_f32_16x16x32_f16(h[i], h[i + 64], acc, 0, 0, 0);
  acc = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(bytes[i], bytes[i + 64], acc, 0, 0, 0);
  acc = __builtin_amdgcn_mfma_f32_16x16x4f32(acc.x, acc.y, acc, 0, 0, 0);
  out[i] = acc;
  wide[i] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(a[i], b[i], wide[i], 0, 0, 0);
}

KERNEL void scaled(f32x4* out, const i32x4* a, const i32x8* b, const u32* scales, f32x16* wide) {
  const u32 i = __builtin_amdgcn_workitem_id_x();
  const i32x4 lo = a[i], hi = a[i + 64];
  const i32x8 fp4a = {lo.x, lo.y, lo.z, lo.w, 0, 0, 0, 0}, fp4b = {hi.x, hi.y, hi.z, hi.w, 0, 0, 0, 0};
  f32x4 acc = {0, 0, 0, 0};
  acc = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(fp4a, fp4b, acc, 4, 4, 0, scales[i], 0, scales[i + 64]);
  acc = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(fp4a, fp4b, acc, 4, 4, 1, scales[i], 3, scales[i + 64]);
  acc = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(b[i], fp4b, acc, 0, 4, 2, scales[i], 1, scales[i + 64]);
  acc = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(b[i], b[i + 64], acc, 2, 3, 0, scales[i], 0, scales[i]);
  out[i] = acc;
  wide[i] = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(b[i], b[i + 64], wide[i], 1, 0, 0, scales[i], 2, scales[i]);
}

// More accumulators than VGPRs: clang moves them through the AccVGPRs.
KERNEL __attribute__((amdgpu_waves_per_eu(1, 1))) void many(f32x16* out, const bf16x8* a) {
  const u32 i = __builtin_amdgcn_workitem_id_x();
  f32x16 acc[18] = {};
  for (int step = 0; step < 8; ++step) {
#pragma unroll
    for (int t = 0; t < 18; ++t)
      acc[t] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(a[step], a[i + t * 64], acc[t], 0, 0, 0);
  }
#pragma unroll
  for (int t = 0; t < 18; ++t) out[i + 64 * t] = acc[t] * acc[t];
}

KERNEL void conversions(u32* out, const float* in, const u32* words, float scale) {
  const u32 i = __builtin_amdgcn_workitem_id_x();
  const float a = in[i], b = in[i + 64];
  const bf16x2 narrow = {(__bf16)a, (__bf16)b};
  const f16x2 half = {(_Float16)a, (_Float16)b};
  u32 r = __builtin_bit_cast(u32, narrow) + __builtin_bit_cast(u32, half * half + half);
  r += __builtin_amdgcn_cvt_pk_fp8_f32(a, b, r, false) ^ __builtin_amdgcn_cvt_pk_fp8_f32(b, a, r, true);
  r += __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(r, a, b, scale, 0);
  r += __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(r, b, a, scale, 3);
  r += __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(r, narrow, scale, 2);
  const f32x2 fp4 = __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(words[i], scale, 1);
  const f32x2 fp8 = __builtin_amdgcn_cvt_pk_f32_fp8(words[i], false) + __builtin_amdgcn_cvt_pk_f32_fp8(words[i], true);
  float f = fp4.x * fp4.y + fp8.x - fp8.y + __builtin_amdgcn_cvt_f32_fp8(words[i], 2) + (float)narrow.x * (float)half.y;
  f = __builtin_amdgcn_fdot2_f32_bf16(narrow, narrow, f, false);
  f += (float)(words[i] >> 8 & 0xff) + (float)(words[i] & 0xff);
  const auto rtz = __builtin_amdgcn_cvt_pkrtz(a, f);
  out[i] = r + __builtin_bit_cast(u32, f) + __builtin_bit_cast(u32, rtz) + __builtin_amdgcn_sdot4(r, words[i], 1, true);
}
