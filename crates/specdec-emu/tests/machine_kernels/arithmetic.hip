// Straight kernels: one element a work-item, a reduction in LDS, hidden arguments.
#define GLOBAL extern "C" __attribute__((global))
#define DEVICE __attribute__((device)) inline
#define SHARED __attribute__((shared))
typedef unsigned u32;

DEVICE float sum(float a, float b) { return a + b; }

GLOBAL void vector_add(const float* a, const float* b, float* c, u32 count) {
  const u32 i = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x();
  if (i < count) c[i] = sum(a[i], b[i]);
}

DEVICE void sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

SHARED u32 partial[512];

GLOBAL void __attribute__((amdgpu_flat_work_group_size(512, 512))) reduce(const u32* in, u32* out) {
  const u32 item = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  partial[item] = in[group * 512 + item];
  sync();
  for (u32 half = 256; half > 0; half /= 2) {
    if (item < half) partial[item] += partial[item + half];
    sync();
  }
  if (item == 0) out[group] = partial[0];
}

// Hidden arguments as code object version 5 and later lays them out.
GLOBAL void hidden(u32* out, u32 first) {
  const __attribute__((address_space(4))) char* implicit =
      (const __attribute__((address_space(4))) char*)__builtin_amdgcn_implicitarg_ptr();
  const u32 group_size = *(const __attribute__((address_space(4))) unsigned short*)(implicit + 12);
  const u32 blocks = *(const __attribute__((address_space(4))) u32*)implicit;
  const u32 remainder = *(const __attribute__((address_space(4))) unsigned short*)(implicit + 18);
  const u32 dimensions = *(const __attribute__((address_space(4))) unsigned short*)(implicit + 64);
  if (__builtin_amdgcn_workitem_id_x() == 0 && __builtin_amdgcn_workgroup_id_x() == 0) {
    out[0] = first;
    out[1] = blocks;
    out[2] = group_size;
    out[3] = remainder;
    out[4] = dimensions;
  }
}

GLOBAL void __attribute__((amdgpu_flat_work_group_size(96, 96))) ids(u32* out) {
  const u32 x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y(), z = __builtin_amdgcn_workitem_id_z();
  const u32 gx = __builtin_amdgcn_workgroup_id_x(), gy = __builtin_amdgcn_workgroup_id_y(), gz = __builtin_amdgcn_workgroup_id_z();
  const u32 item = (z * 6 + y) * 4 + x, group = (gz * 3 + gy) * 2 + gx;
  out[group * 96 + item] = ((((gz * 10 + gy) * 10 + gx) * 10 + z) * 10 + y) * 10 + x;
}

static __attribute__((device)) const u32 kPrimes[4] = {2, 3, 5, 7};

GLOBAL void look_up(u32* out) {
  const u32 lane = __builtin_amdgcn_workitem_id_x();
  out[lane] = kPrimes[lane % 4];
}
