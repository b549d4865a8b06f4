// Kernels that wait for others: pairs between ranks, rows and flags inside a rank, waits with a time-out.
#define GLOBAL extern "C" __attribute__((global))
#define DEVICE __attribute__((device)) inline
#define SHARED __attribute__((shared))
typedef unsigned u32;
typedef unsigned long long u64;
typedef __attribute__((address_space(1))) u64 Pair;
typedef __attribute__((address_space(1))) u32 Word;

DEVICE void sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

DEVICE void publish(u64 region, u32 index, u32 value, u32 tag) {
  __hip_atomic_store((Pair*)region + index, (u64)tag << 32 | value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

// Waits for a pair's tag; gives up after `limit` ticks with a value that says so.
DEVICE u32 wait_pair(u64 region, u32 index, u32 tag, u64 limit) {
  const u64 start = __builtin_amdgcn_s_memrealtime();
  while (true) {
    const u64 pair = __hip_atomic_load((Pair*)region + index, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    if ((u32)(pair >> 32) == tag) return (u32)pair;
    __builtin_amdgcn_s_sleep(1);
    if (__builtin_amdgcn_s_memrealtime() - start > limit) return 0xdead;
  }
}

// Every round each rank publishes 64 values a workgroup to its peer and adds what it receives.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(64, 64)))
swap_rounds(u64 mine, u64 peers, u64 out, u32 rounds, u32 seed) {
  const u32 lane = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  const u32 index = group * 64 + lane;
  u32 value = seed + index;
  for (u32 round = 1; round <= rounds; ++round) {
    const u64 parity = (round & 1) * 8192;
    publish(peers + parity, index, value, round);
    value = value * 3 + wait_pair(mine + parity, index, round, 1ull << 40);
  }
  ((Word*)out)[index] = value;
}

// As `swap_rounds`, after `work` steps of arithmetic, but a lane whose wait lasts more than `limit` ticks ends there.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(64, 64)))
swap_or_give_up(u64 mine, u64 peers, u64 out, u32 rounds, u32 seed, u32 work, u32 limit) {
  const u32 lane = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  const u32 index = group * 64 + lane;
  u32 value = seed + index, spun = index;
  for (u32 step = 0; step < work; ++step) {
    spun = spun * 2654435761u + (spun >> 7);
    asm volatile("" : "+v"(spun));
  }
  for (u32 round = 1; round <= rounds; ++round) {
    const u64 parity = (round & 1) * 8192;
    publish(peers + parity, index, value, round);
    const u32 got = wait_pair(mine + parity, index, round, limit);
    if (got == 0xdead) {
      ((Word*)out)[index] = got;
      return;
    }
    value = value * 3 + got;
  }
  ((Word*)out)[index] = value;
}

// Waits for a pair that nobody sends until the abort word is raised.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(64, 64))) wait_for_abort(u64 region, u64 abort, u64 out) {
  const u32 lane = __builtin_amdgcn_workitem_id_x();
  while (true) {
    const u64 pair = __hip_atomic_load((Pair*)region + lane, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    const u32 asked = __hip_atomic_load((Word*)abort, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    if (pair != 0 || asked != 0) break;
    __builtin_amdgcn_s_sleep(1);
  }
  ((Word*)out)[lane] = 0xab;
}

// Adds to a counter with atomics of both widths.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(64, 64))) count_up(u64 counters, u32 rounds) {
  for (u32 round = 0; round < rounds; ++round) {
    __hip_atomic_fetch_add((Pair*)counters, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    __hip_atomic_fetch_add((Word*)(counters + 12), 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  }
}

// Workgroup 0 waits for a flag; its wave 1 waits for wave 0 at the barrier.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(128, 128))) wait_for_ever(u64 region, u64 out) {
  const u32 item = __builtin_amdgcn_workitem_id_x();
  if (item < 64) ((Word*)out)[item] = wait_pair(region, 5, 9, 1ull << 60);
  sync();
  ((Word*)out)[item] = 1;
}

GLOBAL void __attribute__((amdgpu_flat_work_group_size(64, 64))) wait_or_give_up(u64 region, u64 out) {
  const u32 lane = __builtin_amdgcn_workitem_id_x();
  ((Word*)out)[lane] = wait_pair(region, lane, 7, 300000000);
}

// One producer for all: workgroup 0 stores late, the others poll. Every workgroup publishes for the next round.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(64, 64))) ring(u64 region, u64 out, u32 groups, u32 rounds) {
  const u32 group = __builtin_amdgcn_workgroup_id_x(), lane = __builtin_amdgcn_workitem_id_x();
  u32 value = group;
  for (u32 round = 1; round <= rounds; ++round) {
    if (group == 0) {
      if (lane == 0) publish(region, 0, value + 1, round);
      value = wait_pair(region, groups - 1, round, 1ull << 60);
    } else {
      const u32 got = wait_pair(region, group - 1, round, 1ull << 60);
      if (lane == 0) publish(region, group, got + 1, round);
      value = got;
    }
  }
  if (lane == 0) ((Word*)out)[group] = value;
}

// Rows and flags: a workgroup stores its row plainly, waits, raises its tagged flag; the next one reads the row.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(64, 64))) rows(u64 data, u64 flags, u64 out, u32 groups, u32 tag) {
  const u32 group = __builtin_amdgcn_workgroup_id_x(), lane = __builtin_amdgcn_workitem_id_x();
  const u32 other = (group + 1) % groups;
  __hip_atomic_store((Word*)data + group * 64 + lane, group * 1000 + lane, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  sync();
  if (lane == 0) __hip_atomic_store((Word*)flags + group, tag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  while (__hip_atomic_load((Word*)flags + other, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) != tag) {
    __builtin_amdgcn_s_sleep(1);
  }
  ((Word*)out)[group * 64 + lane] =
      __hip_atomic_load((Word*)data + other * 64 + lane, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// All workgroups publish one pair and wait for everybody's, round after round: what a layer's exchanges cost.
GLOBAL void __attribute__((amdgpu_flat_work_group_size(512, 512)))
all_to_all(u64 region, u64 out, u32 groups, u32 rounds, u32 work) {
  const u32 item = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  u32 value = group * 512 + item;
  for (u32 round = 1; round <= rounds; ++round) {
    for (u32 step = 0; step < work; ++step) value = value * 2654435761u + (value >> 7);
    sync();
    // Two halves: who stores round r + 2 has seen everybody's r + 1, so nobody still waits for r.
    const u64 half = region + (round & 1) * groups * 8;
    if (item == 0) publish(half, group, value, round);
    if (item < 64) {
      for (u32 i = item; i < groups; i += 64) value += wait_pair(half, i, round, 1ull << 60);
    }
    sync();
  }
  ((Word*)out)[group * 512 + item] = value;
}
