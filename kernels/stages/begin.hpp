// A launch's first and last words: whether it may run, and that it has.
//   reads   the rank's header: FAILED, the epoch, the step number that came with the metadata
//   writes  the busy word; a record, the alarms, FAILED and the abort word if the launch must not run
//   work    every thread the same; workgroup 0 keeps the busy word
//   sync    a barrier, so that all waves agree on whether their workgroup has failed
#pragma once

#include "specdec/mailbox.hpp"

namespace specdec {

// A launch that may not run walks its stages all the same: it waits for nobody and publishes poison, so every rank
// learns of it at once and every launch ends.
template <class G>
SPECDEC_DEVICE Context begin(uint32_t layer) {
  Context context;
  auto& args = arch::kernel_arguments<LaunchArgs>();
  context.cta = arch::workgroup_id();
  context.grid = args.grid;
  context.thread = arch::thread_id();
  context.lane = context.thread % abi::WAVE_SIZE;
  context.wave = arch::uniform(context.thread / abi::WAVE_SIZE);
  context.rank = args.rank;
  context.rows = args.rows;
  context.layer_in_run = 0;
  context.layer = layer;
  const uint32_t epoch = arch::uniform(arch::load_system(context.header(kEpoch)));
  const uint32_t step = arch::uniform(arch::load_system(context.header(kStep)));
  const uint32_t failed = arch::uniform(arch::load_system(context.header(kFailed)));
  context.epoch_tag = epoch % abi::TAG_EPOCHS * abi::TAG_LAYERS;
  context.peer_half = epoch % 2 * G::kPeerHalfBytes;
  if (context.thread == 0) {
    workgroup_failed = failed;
    const bool busy = context.cta == 0 && arch::exchange_system(context.header(kBusy), 1) != 0;
    if (busy) {
      // Two launches share the CUs now, so each may wait for workgroups that never start: the other must stop too.
      give_up(context, Stage::AttentionDots, abi::FailureReason::Busy, {true, 0, 1, context.rank}, 0);
      arch::store_system(args.abort, 1);
    } else if (failed == 0 && step != epoch) {
      give_up(context, Stage::AttentionDots, abi::FailureReason::StaleMetadata, {true, 0, step, context.rank}, epoch);
    }
  }
  context.barrier();
  return context;
}

SPECDEC_DEVICE void end(const Context& context) {
  if (context.cta == 0 && context.thread == 0) arch::store_system(context.header(kBusy), 0);
}

}  // namespace specdec
