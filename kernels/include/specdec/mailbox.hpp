// How workgroups and ranks hand each other data (spec: DESIGN "Exchanges", "Tags", "Waits give up").
//
// Rows: plain device-scope stores, then one tagged flag per producer; readers poll the flags. Inside a rank.
// Pairs: payload and tag in one 8-byte word, seen whole; readers poll the words themselves. Between ranks.
#pragma once

#include "specdec/math.hpp"

namespace specdec {

using abi::LaunchArgs;
using abi::Stage;
using Arguments = arch::Constant<LaunchArgs>;
using Descriptor = arch::Constant<abi::LayerDescriptor>;

// Set once this workgroup has given up: from then on it waits for nothing and publishes poison.
SPECDEC_SHARED uint32_t workgroup_failed;

// Offsets of the words of `HealthHeader`.
constexpr uint32_t kFailed = __builtin_offsetof(abi::HealthHeader, failed);
constexpr uint32_t kEpoch = __builtin_offsetof(abi::HealthHeader, epoch);
constexpr uint32_t kBusy = __builtin_offsetof(abi::HealthHeader, busy);
constexpr uint32_t kStep = __builtin_offsetof(abi::HealthHeader, step);

// Tasks of one workgroup: first, first + stride, ... below end.
struct Share {
  uint32_t first, end, stride;
  SPECDEC_DEVICE bool empty() const { return first >= end; }
};

// What every stage needs to know of its launch, in scalar registers.
struct Context {
  uint32_t cta, grid, thread, lane, wave;
  uint32_t rank, rows;
  uint32_t epoch_tag;  // tag of layer "-1" of this step
  uint32_t layer;
  uint32_t layer_in_run;
  uint32_t peer_half;  // byte offset of this step's parity half
  uint32_t failed;  // this workgroup has given up: 0 or 1

  SPECDEC_DEVICE Arguments& args() const { return arch::kernel_arguments<LaunchArgs>(); }
  SPECDEC_DEVICE uint32_t tag() const { return epoch_tag + layer + 1; }
  SPECDEC_DEVICE uint32_t publish_tag() const { return failed ? abi::POISON_TAG : tag(); }
  // Empty once the workgroup has given up: it has waited for nobody since, so what it overwrote, others might still read.
  SPECDEC_DEVICE Span scratch(uint32_t offset, uint32_t bytes) const {
    return Span(args().scratch + offset, failed != 0 ? 0 : bytes);
  }
  SPECDEC_DEVICE uint64_t header(uint32_t offset) const { return args().health + offset; }
  SPECDEC_DEVICE uint64_t peer(uint32_t to, uint32_t offset) const { return args().peers[to] + peer_half + offset; }

  // Called where a stage begins. Nothing is in flight from here, whatever the compiler must assume of the loop before:
  // it would wait for that later, in the middle of the weights. (What a wave pushed, its next load would wait for
  // anyway: vector memory returns in order.) And nothing derived from these values lives on from the stage before,
  // which would cost registers through the whole kernel.
  SPECDEC_DEVICE void enter_stage() {
    arch::wait_memory();
    arch::forget_uniform(cta), arch::forget_uniform(grid), arch::forget_uniform(wave);
    arch::forget_uniform(rank), arch::forget_uniform(rows), arch::forget_uniform(layer);
    arch::forget_uniform(epoch_tag), arch::forget_uniform(peer_half), arch::forget_uniform(layer_in_run);
    failed = arch::uniform(workgroup_failed);
    arch::forget(thread);
    lane = thread % abi::WAVE_SIZE;
  }

  SPECDEC_DEVICE arch::Constant<abi::StageTasks>& tasks(Stage stage) const {
    return arch::constant<abi::StageTasks>(args().stages)[uint32_t(stage)];
  }
  // This workgroup's place in a stage's order. In a stage that is dealt to the whole grid, its first task.
  SPECDEC_DEVICE uint32_t place(Stage stage) const {
    const uint64_t places = args().stages + abi::NUM_STAGES * sizeof(abi::StageTasks);
    return arch::constant<uint32_t>(places)[cta * abi::PLACE_STRIDE + uint32_t(stage)];
  }
  // Any stage: this workgroup's share of its tasks.
  SPECDEC_DEVICE Share share(Stage stage) const {
    auto& row = tasks(stage);
    const uint32_t at = place(stage), head = row.head_ctas;
    if (at < head) return {at, row.head_tasks, head};
    return {row.head_tasks + at - head, row.tasks, grid - head};
  }
  // A stage whose tasks are waves: at most one task each.
  SPECDEC_DEVICE uint32_t wave_task(Stage stage) const { return place(stage) + wave * grid; }
  SPECDEC_DEVICE uint32_t producers(uint32_t num_tasks) const { return num_tasks < grid ? num_tasks : grid; }

  // A workgroup barrier after which all waves agree on whether the workgroup has failed.
  SPECDEC_DEVICE void barrier() {
    arch::barrier();
    failed = arch::uniform(workgroup_failed);
  }
};

// One lane's view of what it polls.
struct Probe {
  bool pending;
  uint32_t offset;  // of the first missing word in its buffer
  uint32_t seen;
  uint32_t source;  // rank that owes it
};

// One lane of a wave calls this, once: a record per wave. Waits that began together end in any order; the one of the
// earliest stage names the cause.
SPECDEC_DEVICE void give_up(Context& context, Stage stage, abi::FailureReason reason, const Probe& probe,
                            uint32_t wanted) {
  auto& args = context.args();
  const uint32_t index = context.cta * abi::WAVES + context.wave;
  const uint64_t record = args.health + abi::HEALTH_HEADER_BYTES + index * sizeof(abi::FailureRecord);
  const uint32_t words[8] = {uint32_t(reason), uint32_t(stage), context.layer, probe.offset,
                             wanted,           probe.seen,      probe.source,  uint32_t(arch::clock())};
  for (int i = 7; i >= 0; --i) arch::store_system(record + 4 * i, words[i]);
  // Every rank is told in which step and layer this one gave up: whichever hands out tokens knows.
#pragma clang loop unroll(disable)
  for (uint32_t to = 0; to < abi::MAX_RANKS; ++to) {
    const uint64_t peer = args.peers[to];
    if (peer != 0) arch::store_system(peer - abi::PEER_HEAD_BYTES + 4 * context.rank, context.tag());
  }
  // Nothing that this rank stores after FAILED may overtake its alarms.
  arch::wait_memory();
  arch::store_system(context.header(kFailed), 1);
  workgroup_failed = 1;
}

// Polls until no lane's probe is pending; gives up on poison, on the host's word or when the time is over. Only waves
// without weights in flight call this: a poll waits for every load issued before it.
template <class Look>
SPECDEC_DEVICE void wait(Context& context, Stage stage, uint32_t wanted, Look look) {
  if (context.failed) return;
  const uint64_t start = arch::clock();
  for (;;) {
    const Probe probe = look();
    const uint64_t pending = arch::ballot(probe.pending);
    if (pending == 0) break;
    const uint64_t poisoned = arch::ballot(probe.pending && probe.seen == abi::POISON_TAG);
    auto& args = context.args();
    const bool abort = arch::load_system(args.abort) != 0;
    const bool late = arch::clock() - start > args.timeout_ticks;
    if (poisoned != 0 || arch::uniform(abort) || late) {
      const auto reason = poisoned != 0 ? abi::FailureReason::Poison
                          : late        ? abi::FailureReason::Timeout
                                        : abi::FailureReason::Abort;
      if (context.lane == uint32_t(__builtin_ctzll(poisoned != 0 ? poisoned : pending)))
        give_up(context, stage, reason, probe, wanted);
      context.failed = 1;
      break;
    }
    arch::sleep();
  }
  // No load of the loop is left for the compiler to wait for behind this wave's next weights.
  arch::wait_memory();
}

// Waits for `count` flags, at most 1024, four to a load.
SPECDEC_DEVICE void wait_flags(Context& context, Stage stage, uint32_t flags_offset, uint32_t count) {
  const Span flags = context.scratch(flags_offset, count * 4);
  const uint32_t tag = context.tag();
  wait(context, stage, tag, [&] {
    Probe probe = {false, 0, 0, context.rank};
    arch::memory_fence();
#pragma unroll
    for (uint32_t batch = 0; batch < 4; ++batch) {
      if (batch * 256 >= count) break;
      const uint32_t index = batch * 256 + context.lane * 4;
      const Uint4 seen = flags.load16<Scope::kDevice>(index * 4);
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const bool missing = (index + i < count) & (seen[i] != tag);
        probe.pending |= missing;
        probe.offset = missing ? flags_offset + (index + i) * 4 : probe.offset;
        probe.seen = missing ? seen[i] : probe.seen;
      }
    }
    return probe;
  });
}

// Waits for flags first .. first + count, at most one a lane.
SPECDEC_DEVICE void wait_few_flags(Context& context, Stage stage, uint32_t flags_offset, uint32_t first,
                                   uint32_t count) {
  const uint32_t offset = flags_offset + first * 4;
  const Span flags = context.scratch(offset, count * 4);
  const uint32_t tag = context.tag();
  wait(context, stage, tag, [&] {
    arch::memory_fence();
    const uint32_t seen = flags.load4<Scope::kDevice>(context.lane * 4);
    const bool missing = (context.lane < count) & (seen != tag);
    return Probe{missing, offset + context.lane * 4, seen, context.rank};
  });
}

// Waits for kPairs pairs a lane at `offset(i)` of this rank's peer buffer; `source(i)` names the rank that owes each.
template <int kPairs, class Offset, class Source>
SPECDEC_DEVICE void wait_pairs(Context& context, Stage stage, uint32_t tag, bool active, Offset offset, Source source,
                               uint32_t (&payload)[kPairs]) {
  const uint64_t base = context.peer(context.rank, 0);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) payload[i] = 0;
  wait(context, stage, tag, [&] {
    Probe probe = {false, 0, 0, 0};
    if (active) {
      uint64_t pairs[kPairs];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) pairs[i] = arch::load_pair(base + offset(i));
#pragma unroll
      for (int i = kPairs - 1; i >= 0; --i) {
        payload[i] = uint32_t(pairs[i]);
        const uint32_t seen = pairs[i] >> 32;
        const bool missing = seen != tag;
        probe.pending |= missing;
        probe.offset = missing ? context.peer_half + offset(i) : probe.offset;
        probe.seen = missing ? seen : probe.seen;
        probe.source = missing ? source(i) : probe.source;
      }
    }
    return probe;
  });
}

// Where the pair of `column` (even) of one rank's partial row of `width` columns lies in a region of partial sums.
SPECDEC_DEVICE uint32_t partial_offset(uint32_t region, uint32_t source, uint32_t row, uint32_t width,
                                       uint32_t column) {
  return region + ((source * abi::MAX_ROWS + row) * width + column) * 4;
}

// One pair to every rank, this one included.
template <uint32_t kRanks>
SPECDEC_DEVICE void push_pair(const Context& context, uint32_t offset, uint32_t payload) {
  const uint32_t tag = context.publish_tag();
#pragma unroll
  for (uint32_t to = 0; to < kRanks; ++to) arch::store_pair(context.peer(to, offset), payload, tag);
}

// This rank's partial sums of two columns, to every rank.
template <uint32_t kRanks>
SPECDEC_DEVICE void push_partial(const Context& context, uint32_t region, uint32_t row, uint32_t width, uint32_t column,
                                 Float2 sums) {
  push_pair<kRanks>(context, partial_offset(region, context.rank, row, width, column), narrow(sums));
}

// Ends a wave's task: its stores first, then its flag.
SPECDEC_DEVICE void publish_wave(const Context& context, uint32_t flags_offset, uint32_t index) {
  arch::wait_memory();
  if (context.lane == 0) arch::store_flag(context.args().scratch + flags_offset + index * 4, context.publish_tag());
}
// Ends a workgroup's part of a stage: the stores of all its waves first, then its flag.
SPECDEC_DEVICE void publish(Context& context, uint32_t flags_offset, uint32_t index) {
  arch::wait_memory();
  context.barrier();
  if (context.thread == 0) arch::store_flag(context.args().scratch + flags_offset + index * 4, context.publish_tag());
}

}  // namespace specdec
