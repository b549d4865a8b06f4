// Matrix instructions where a compiler may put them.
#define GLOBAL extern "C" __attribute__((global))
typedef unsigned u32;

// A matrix product that only half of the lanes use: the compiler sinks it behind their mask.
typedef __bf16 Bf16x8 __attribute__((ext_vector_type(8)));
typedef float Float4 __attribute__((ext_vector_type(4)));
GLOBAL void __attribute__((amdgpu_flat_work_group_size(64, 64))) half_product(const Bf16x8* a, Float4* out) {
  const u32 item = __builtin_amdgcn_workitem_id_x();
  if (item >= 32) return;
  out[item] = __builtin_amdgcn_mfma_f32_16x16x32_bf16(a[item], a[item], Float4{0, 0, 0, 0}, 0, 0, 0);
}
