// Memory: every width of global, buffer, LDS, flat and scratch access, LDS DMA, atomics and scopes.
#define KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 512)))
#define LDS __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))
typedef unsigned u32;
typedef unsigned long long u64;
typedef u32 u32x3 __attribute__((ext_vector_type(3)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef float f32x2 __attribute__((ext_vector_type(2)));

KERNEL void widths(u32x4* out, const u32x4* in, const signed char* bytes, const unsigned char* ubytes,
                   const short* halves, const unsigned short* uhalves, const u32x3* triples, u64* pairs) {
  const u32 i = __builtin_amdgcn_workitem_id_x();
  u32x4 x = in[i] + in[i + 7];
  x.x += bytes[i] + ubytes[i + 5];
  x.y += halves[i] + uhalves[i + 9];
  const u32x3 t = triples[i];
  x.z += t.x * t.y + t.z;
  pairs[i] += x.x;
  ((unsigned char*)pairs)[i * 3 + 1] = (unsigned char)x.y;
  ((unsigned short*)pairs)[i * 5 + 1] = (unsigned short)(x.z >> 16);
  ((u32x3*)out)[i + 1000] = t;
  out[i] = __builtin_nontemporal_load(in + i + 64) + x;
  __builtin_nontemporal_store(x, out + i + 64);
}

KERNEL void d16(unsigned short* out, const unsigned short* in, const unsigned char* bytes) {
  typedef unsigned short u16x2 __attribute__((ext_vector_type(2)));
  const u32 i = __builtin_amdgcn_workitem_id_x();
  u16x2 v = {in[i], in[i + 100]};
  u16x2 w = {bytes[i], bytes[i + 100]};
  v = v * w + (v << w) - (u16x2)7;
  v = __builtin_elementwise_max(v, w);
  out[i] = v.y;
  out[i + 100] = v.x;
}

KERNEL void buffers(u32x4* out, const u32x4* in, int bytes, int soffset) {
  const auto source = __builtin_amdgcn_make_buffer_rsrc((void*)in, 0, bytes, 0x27000);
  const auto target = __builtin_amdgcn_make_buffer_rsrc((void*)out, 0, bytes, 0x27000);
  const int i = __builtin_amdgcn_workitem_id_x() * 16;
  u32x4 x = __builtin_amdgcn_raw_buffer_load_b128(source, i, soffset, 0);
  x.x += __builtin_amdgcn_raw_buffer_load_b32(source, i + 4096, soffset, 1);
  x.y += __builtin_amdgcn_raw_buffer_load_b16(source, i + 32, 0, 2);
  x.y += __builtin_amdgcn_raw_buffer_load_b8(source, i, 0, 16);
  const auto pair = __builtin_amdgcn_raw_buffer_load_b64(source, i + 64, soffset, 17);
  x.z += pair[0] - pair[1];
  __builtin_amdgcn_raw_buffer_store_b128(x, target, i, soffset, 0);
  __builtin_amdgcn_raw_buffer_store_b32(x.x, target, i + 64, soffset, 17);
  __builtin_amdgcn_raw_buffer_store_b16((short)x.y, target, i + 128, 0, 0);
  __builtin_amdgcn_raw_buffer_store_b8((char)x.z, target, i + 256, 0, 0);
}

static __attribute__((shared)) u32x4 tile[1024];

KERNEL void lds(u32x4* out, const u32x4* in, int bytes) {
  const u32 i = __builtin_amdgcn_workitem_id_x();
  const auto source = __builtin_amdgcn_make_buffer_rsrc((void*)in, 0, bytes, 0x27000);
  __builtin_amdgcn_raw_ptr_buffer_load_lds(source, (LDS void*)&tile[i & ~63u], 16, i * 16, 0, 0, 2);
  __builtin_amdgcn_raw_ptr_buffer_load_lds(source, (LDS void*)&tile[512], 4, i * 4, 64, 0, 0);
  __builtin_amdgcn_global_load_lds((GLOBAL void*)(in + i), (LDS void*)&tile[256], 16, 0, 0);
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  LDS u32* words = (LDS u32*)tile;
  LDS unsigned char* bytewise = (LDS unsigned char*)tile;
  LDS unsigned short* halves = (LDS unsigned short*)tile;
  LDS u64* pairs = (LDS u64*)tile;
  u32x4 x = tile[i];
  x.x += words[i] + words[i + 64] + words[i + 4096 - 64] + bytewise[i] + (signed char)bytewise[i + 700];
  x.y += halves[i] + (short)halves[i + 8] + (u32)pairs[i] + (u32)(pairs[i + 3] >> 9);
  words[i + 128] = x.x;
  words[i + 192] = x.y;
  bytewise[i] = (unsigned char)x.z;
  halves[i + 999] = (unsigned short)(x.w >> 16);
  pairs[i + 100] = x.x;
  pairs[i + 164] = x.y;
  x.z += __hip_atomic_fetch_add(&words[3], x.x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  __hip_atomic_fetch_or(&words[4], x.x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  __hip_atomic_fetch_max(&words[5], x.x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  x.w += __hip_atomic_exchange(&words[6], x.y, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  tile[i + 512] = x;
  out[i] = x + tile[(i ^ 1) + 512];
}

KERNEL void atomics(u32* words, u64* pairs, float* floats, u32 value) {
  const u32 i = __builtin_amdgcn_workitem_id_x();
  u32 expected = i;
  __hip_atomic_compare_exchange_strong(words + i, &expected, value, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE,
                                       __HIP_MEMORY_SCOPE_SYSTEM);
  expected += __hip_atomic_fetch_add(words + 64, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_and(words + 65, expected, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_or(words + 66, expected, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  __hip_atomic_fetch_max(words + 67, expected, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_min((int*)words + 68, (int)expected, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_exchange(pairs, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_add(pairs + 1, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_store(pairs + i, (u64)value << 32 | i, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
  expected += (u32)__hip_atomic_load(pairs + i + 8, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
  expected += (u32)__hip_atomic_load(pairs + i + 16, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __builtin_amdgcn_global_atomic_fadd_f32((GLOBAL float*)floats, 1.5f);
  words[i + 128] = expected;
}

KERNEL void indirect(u64* table, int n) {
  u32* pointer = (u32*)table[n];
  u32 spilled[40];
  for (int i = 0; i < 40; ++i) spilled[i] = pointer[i];
  pointer[3] = spilled[n] + spilled[table[1] & 31];
  *(volatile u32x4*)(pointer + 64) = {spilled[n & 7], 1, 2, 3};
  __hip_atomic_fetch_add(pointer, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
