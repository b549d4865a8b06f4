// Stage scrub, in the last launch of a step: clears tags that nobody would overwrite for a whole cycle of epochs.
//   reads   nothing
//   writes  zeros: pairs and flags of one row beyond the step's width, round robin; flags of workgroups without a task
//   work    every thread of the grid, a word each
//   sync    none: nobody uses these words in this step, and a peer is at most in the next one, which has the other half
//
// A row that no step uses is cleared within 2 * MAX_ROWS steps, so its last tag is gone long before it comes round again
// (spec: DESIGN "Tags"). A row that a step uses is overwritten.
#pragma once

#include "stages/route.hpp"

namespace specdec {

template <class G>
struct Scrub {
  uint32_t worker, workers, row;

  // Pairs [first, first + count) of this rank's half.
  SPECDEC_DEVICE void pairs(const Context& context, uint32_t region, uint32_t first, uint32_t count) const {
    for (uint32_t i = worker; i < count; i += workers)
      arch::store_pair(context.peer(context.rank, region + (first + i) * 8), 0, 0);
  }
  SPECDEC_DEVICE void partials(const Context& context, uint32_t region, uint32_t width) const {
    for (uint32_t source = 0; source < G::kRanks; ++source)
      pairs(context, region, (source * abi::MAX_ROWS + row) * (width / 2), width / 2);
  }
  SPECDEC_DEVICE void flags(const Context& context, uint32_t flags, uint32_t slices) const {
    if (worker < slices) arch::store_flag(context.args().scratch + flags + (row * slices + worker) * 4, 0);
  }
};

// The flag of a workgroup that does not produce for a region in this step.
SPECDEC_DEVICE void scrub_idle(const Context& context, uint32_t flags, uint32_t index, uint32_t num_tasks) {
  if (index >= context.producers(num_tasks) && context.thread == 0)
    arch::store_flag(context.args().scratch + flags + index * 4, 0);
}

template <class G>
SPECDEC_DEVICE void scrub(Context& context) {
  context.enter_stage();
  if (!(context.args().flags & abi::LAST_OF_STEP)) return;
  static_assert(abi::MAX_REQUESTS * G::kHeads * G::kChunks >= G::kHidden / abi::TILE, "a flag for every workgroup");
  scrub_idle(context, G::kCoreFlags, context.place(Stage::Kda), context.tasks(Stage::Kda).tasks);
  scrub_idle(context, G::kExpertHiddenFlags, context.place(Stage::ExpertUp),
             arch::uniform(routing<G>.num_union) * G::kGroups);

  const uint32_t row = context.epoch_tag / abi::TAG_LAYERS / 2 % abi::MAX_ROWS;
  if (row < context.rows) return;
  const Scrub<G> scrub = {context.cta * abi::BLOCK + context.thread, context.grid * abi::BLOCK, row};
  scrub.partials(context, G::kAttentionOutData, G::kHidden);
  scrub.partials(context, G::kLatentOutData, G::kLatentWidth);
  scrub.partials(context, G::kOutputData, G::kHidden);
  scrub.pairs(context, G::kLogitsData, row * G::kExperts, G::kExperts);
  scrub.pairs(context, G::kLatentData, row * (G::kLatentWidth / 2), G::kLatentWidth / 2);
  scrub.flags(context, G::kAttentionDotsFlags, G::kSlices);
  scrub.flags(context, G::kAttentionXFlags, G::kSlices);
  scrub.flags(context, G::kMlpDotsFlags, G::kSlices);
  scrub.flags(context, G::kMlpXFlags, G::kSlices);
  scrub.flags(context, G::kLatentZFlags, G::kLatentSlices);
}

}  // namespace specdec
