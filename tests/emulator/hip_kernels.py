"""HIP C++ as people write it, without a header of ours: LDS tiles, atomics, look-back, cross-lane sums, divisions."""

PREAMBLE = """
#define KERNEL extern "C" __attribute__((global)) void
#define SHARED __attribute__((shared))
struct Index { unsigned x, y; };
static __attribute__((device)) inline Index thread() {
  return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y()};
}
static __attribute__((device)) inline Index group() {
  return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y()};
}
static __attribute__((device)) inline void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
"""

MATMUL = PREAMBLE + """
constexpr int kTile = 16;
KERNEL tiled_matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  SHARED static float left[kTile][kTile], right[kTile][kTile + 1];
  const int x = thread().x, y = thread().y;
  const int row = group().y * kTile + y, column = group().x * kTile + x;
  float total = 0;
  for (int start = 0; start < k; start += kTile) {
    left[y][x] = row < m && start + x < k ? a[row * k + start + x] : 0;
    right[y][x] = start + y < k && column < n ? b[(start + y) * n + column] : 0;
    barrier();
    for (int i = 0; i < kTile; ++i) total += left[y][i] * right[i][x];
    barrier();
  }
  if (row < m && column < n) c[row * n + column] = total;
}
"""

HISTOGRAM = PREAMBLE + """
KERNEL histogram(const unsigned char* bytes, unsigned* counts, unsigned n) {
  SHARED static unsigned mine[256];
  mine[thread().x] = 0;
  barrier();
  const unsigned stride = __builtin_amdgcn_grid_size_x();
  for (unsigned i = group().x * __builtin_amdgcn_workgroup_size_x() + thread().x; i < n; i += stride)
    __hip_atomic_fetch_add(&mine[bytes[i]], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  barrier();
  if (const unsigned found = mine[thread().x])
    __hip_atomic_fetch_add(&counts[thread().x], found, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
"""

# One pass: a workgroup publishes its sum, then waits for the total of those before it.
SCAN = PREAMBLE + """
KERNEL scan(const int* values, long long* sums, unsigned long long* totals, unsigned n) {
  SHARED static long long part[256];
  SHARED static long long before;
  const unsigned x = thread().x, i = group().x * 256 + x;
  part[x] = i < n ? values[i] : 0;
  barrier();
  for (unsigned step = 1; step < 256; step *= 2) {
    const long long add = x >= step ? part[x - step] : 0;
    barrier();
    part[x] += add;
    barrier();
  }
  if (x == 0) {
    // The low bit says that a total is there.
    unsigned long long found = 1;
    if (group().x > 0)
      while (!((found = __hip_atomic_load(&totals[group().x - 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT)) & 1))
        __builtin_amdgcn_s_sleep(1);
    before = (long long)found >> 1;
    const unsigned long long total = (unsigned long long)(before + part[255]) << 1 | 1;
    __hip_atomic_store(&totals[group().x], total, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  }
  barrier();
  if (i < n) sums[i] = before + part[x];
}
"""

# Butterfly over the lanes of a wave, then one atomic add.
DOT = PREAMBLE + """
KERNEL dot(const float* a, const float* b, float* total, unsigned n) {
  const unsigned lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  float sum = 0;
  for (unsigned i = group().x * 256 + thread().x; i < n; i += __builtin_amdgcn_grid_size_x()) sum += a[i] * b[i];
  for (unsigned other = 32; other > 0; other /= 2)
    sum += __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute((lane ^ other) * 4, __builtin_bit_cast(int, sum)));
  if (lane == 0) __hip_atomic_fetch_add(total, sum, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
"""

# Divergent loops and integer division of 32 and 64 bits.
NUMBERS = PREAMBLE + """
KERNEL numbers(const unsigned long long* a, const unsigned* b, unsigned long long* quotients, int* remainders,
               unsigned* steps, unsigned n) {
  const unsigned i = group().x * 256 + thread().x;
  if (i >= n) return;
  quotients[i] = a[i] / b[i];
  remainders[i] = -(int)(b[i] >> 1) % (int)(i + 1);
  unsigned long long value = i + 1;
  unsigned count = 0;
  while (value != 1) {
    value = value & 1 ? 3 * value + 1 : value / 2;
    ++count;
  }
  steps[i] = count;
}
"""
