// Stage output (Output): the all-reduced output of a run's last layer, and the step's end.
//   reads   Output pairs of every rank
//   writes  `delta` bf16 in memory; the epoch, if this launch is the step's last
//   work    one wave per (row, slice of 128 columns); a lane owns two adjacent columns
//   sync    waits for the pairs of its columns
#pragma once

#include "stages/seam_dots.hpp"

namespace specdec {

template <class G>
SPECDEC_DEVICE void output(Context& context) {
  context.enter_stage();
  const uint32_t task = context.wave_task(Stage::Output);
  if (task >= context.tasks(Stage::Output).tasks) return;
  const uint32_t row = task / G::kSlices;
  const uint32_t column = task % G::kSlices * abi::SLICE + context.lane * 2;
  const uint32_t sum = all_reduced_pair<G>(context, Stage::Output, context.tag(), true, G::kOutputData, G::kHidden, row,
                                           column);
  auto& args = context.args();
  if (!context.failed) *arch::global<uint32_t>(args.delta + (uint64_t(row) * G::kHidden + column) * 2) = sum;
  // Every workgroup has read the epoch: these sums depend on a task of each. A failed step stays open.
  if (task == 0 && context.lane == 0 && context.failed == 0 && (args.flags & abi::LAST_OF_STEP))
    arch::store_system(context.header(kEpoch), arch::load_system(context.header(kEpoch)) + 1);
}

}  // namespace specdec
