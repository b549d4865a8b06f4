// Workgroups that hand each other rows behind a flag, right or with one mistake: what the race check is tried on.
#define GLOBAL extern "C" __attribute__((global))
#define DEVICE __attribute__((device)) inline __attribute__((always_inline))
#define SHARED __attribute__((shared))
typedef unsigned u32;
typedef unsigned long long u64;
typedef __attribute__((address_space(1))) u32 Word;

enum Mistake : u32 {
  kNone,
  kNoVmcnt,       // the flag does not wait for the row
  kNoBarrier,     // nor for the other wave's
  kPlainStore,    // the row is stored for the workgroup only
  kPlainLoad,     // and loaded so
  kNoPoll,        // the reader does not wait
  kLooksOnce,     // it looks at the flag and goes on
  kEarly,         // the writer overwrites its row before the readers have told that they have it
  kDeviceScope,   // between ranks, past this device's caches only
  kNoLocalBarrier // what waves hand each other in LDS
};

DEVICE void wait_memory() {
  asm volatile("" ::: "memory");
  __builtin_amdgcn_s_waitcnt(0x0F70);
  asm volatile("" ::: "memory");
}
DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
template <int kScope>
DEVICE void put(u64 address, u32 value) {
  __hip_atomic_store((Word*)address, value, __ATOMIC_RELAXED, kScope);
}
template <int kScope>
DEVICE u32 get(u64 address) {
  return __hip_atomic_load((Word*)address, __ATOMIC_RELAXED, kScope);
}

SHARED u32 local[128];

// Each workgroup, of two waves, writes a row of 128 words into `to` and reads its neighbour's from `from`, twice.
template <u32 kMistake, int kScope>
DEVICE void exchange(u64 to, u64 from, u64 out, u32 groups, u32 first_tag) {
  const u32 item = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  const u32 other = (group + 1) % groups;
  const u64 row = 1024, flags = 65536, done = 98304;
  u32 sum = 0;
  for (u32 round = 0; round < 2; ++round) {
    const u32 tag = first_tag + round;
    const u64 mine = to + group * row + item * 4;
    if (kMistake == kPlainStore)
      put<__HIP_MEMORY_SCOPE_WORKGROUP>(mine, tag * 1000 + item);
    else
      put<kMistake == kDeviceScope ? __HIP_MEMORY_SCOPE_AGENT : kScope>(mine, tag * 1000 + item);
    if (kMistake != kNoVmcnt) wait_memory();
    if (kMistake != kNoBarrier) barrier();
    if (item == 0) put<kScope>(to + flags + group * 64, tag);
    if (item < 64 && kMistake != kNoPoll)
      while (get<kScope>(from + flags + other * 64) != tag && kMistake != kLooksOnce) __builtin_amdgcn_s_sleep(1);
    barrier();
    const u64 theirs = from + other * row + item * 4;
    u32 value;
    if (kMistake == kPlainLoad)
      value = get<__HIP_MEMORY_SCOPE_WORKGROUP>(theirs);
    else
      value = get<kMistake == kDeviceScope ? __HIP_MEMORY_SCOPE_AGENT : kScope>(theirs);
    local[item] = value;
    if (kMistake != kNoLocalBarrier) barrier();
    sum += local[127 - item];
    barrier();
    // The row may be overwritten once its reader has said so.
    if (item == 0) put<kScope>(from + done + other * 64, tag);
    if (item < 64 && kMistake != kEarly)
      while (get<kScope>(to + done + group * 64) != tag) __builtin_amdgcn_s_sleep(1);
    barrier();
  }
  ((Word*)out)[group * 128 + item] = sum;
}

#define KERNEL(name, mistake, scope)                                                     \
  GLOBAL void __attribute__((amdgpu_flat_work_group_size(128, 128)))                     \
  name(u64 to, u64 from, u64 out, u32 groups, u32 first_tag) {                           \
    exchange<mistake, __HIP_MEMORY_SCOPE_##scope>(to, from, out, groups, first_tag);     \
  }
KERNEL(right, kNone, AGENT)
KERNEL(no_vmcnt, kNoVmcnt, AGENT)
KERNEL(no_barrier, kNoBarrier, AGENT)
KERNEL(plain_store, kPlainStore, AGENT)
KERNEL(plain_load, kPlainLoad, AGENT)
KERNEL(no_poll, kNoPoll, AGENT)
KERNEL(looks_once, kLooksOnce, AGENT)
KERNEL(early, kEarly, AGENT)
KERNEL(no_local_barrier, kNoLocalBarrier, AGENT)
KERNEL(right_between_ranks, kNone, SYSTEM)
KERNEL(device_scope, kDeviceScope, SYSTEM)

// Launch after launch: plain stores and loads, by other workgroups each time.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(128, 128))) shift(u64 from, u64 to, u64, u32 groups, u32) {
  const u32 item = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  ((Word*)to)[(group + 1) % groups * 128 + item] = ((Word*)from)[group * 128 + item] + 1;
}

// A counter that all workgroups raise: read-modify-writes order what comes before and after them.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(128, 128))) last_one(u64 rows, u64 counter, u64 out, u32 groups, u32) {
  const u32 item = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  put<__HIP_MEMORY_SCOPE_AGENT>(rows + group * 512 + item * 4, group + item);
  wait_memory();
  barrier();
  if (item == 0) local[0] = __hip_atomic_fetch_add((Word*)counter, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  barrier();
  if (local[0] + 1 != groups) return;
  u32 sum = 0;
  for (u32 g = 0; g < groups; ++g) sum += get<__HIP_MEMORY_SCOPE_AGENT>(rows + g * 512 + item * 4);
  ((Word*)out)[item] = sum;
}
