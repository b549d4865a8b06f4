// Stage seam_dots (AttentionDots, MlpDots): the prefix takes in the last output, and the products of its sources.
//   reads   the previous layer's Output pairs (or `delta` in memory), or this layer's AttentionOut pairs; prefix, blocks
//   writes  prefix in place, the block of a block-write layer; region AttentionDots or MlpDots
//   work    one wave per (row, slice of 128 columns); a lane owns two adjacent columns
//   sync    waits for the pairs of its columns; a flag per (row, slice)
#pragma once

#include "specdec/mailbox.hpp"

namespace specdec {

// Index of the prefix among the sources: behind every block that may exist.
constexpr uint32_t kPrefixSource = abi::MAX_BLOCKS;

// Lane that holds the dot of source s, and the Gram entry of sources t >= s.
SPECDEC_DEVICE constexpr uint32_t dot_lane(uint32_t s) { return s; }
SPECDEC_DEVICE constexpr uint32_t gram_lane(uint32_t t, uint32_t s) { return kPrefixSource + 1 + t * (t + 1) / 2 + s; }
static_assert(gram_lane(kPrefixSource, kPrefixSource) < abi::SEAM_VALUES, "every product has a lane");

// The sources of one (row, slice), kept in registers from seam_dots to seam_mix.
struct SeamSources {
  uint32_t pair[abi::MAX_BLOCKS + 1];  // two bf16 columns of each
  uint32_t num_blocks;
};

template <class G>
SPECDEC_DEVICE uint32_t all_reduced_pair(Context& context, Stage stage, uint32_t tag, bool active, uint32_t region,
                                         uint32_t width, uint32_t row, uint32_t column) {
  uint32_t parts[G::kRanks];
  wait_pairs<G::kRanks>(
      context, stage, tag, active,
      [&](uint32_t source) { return partial_offset(region, source, row, width, column); },
      [](uint32_t source) { return source; }, parts);
  Float2 sum = {0, 0};
#pragma unroll
  for (uint32_t source = 0; source < G::kRanks; ++source) sum += widen(parts[source]);
  return narrow(sum);
}

template <class G>
SPECDEC_DEVICE SeamSources seam_dots(Context& context, Descriptor& layer, bool mlp) {
  context.enter_stage();
  const Stage stage = mlp ? Stage::MlpDots : Stage::AttentionDots;
  const uint32_t task = context.wave_task(stage);
  const uint32_t row = task / G::kSlices, slice = task % G::kSlices;
  const uint32_t column = slice * abi::SLICE + context.lane * 2;
  const bool writes_block = layer.block_write != abi::NONE;
  SeamSources sources = {};
  sources.num_blocks = layer.num_blocks + (mlp && writes_block ? 1 : 0);
  if (task >= context.tasks(stage).tasks) return sources;

  auto& args = context.args();
  auto& seam = mlp ? layer.mlp_seam : layer.attention_seam;
  const uint64_t block_row = args.blocks + (uint64_t(row) * args.blocks_row_stride + column) * 2;
  const uint64_t prefix_at = args.prefix + (uint64_t(row) * G::kHidden + column) * 2;
  const Float2 direction = widen(arch::global<uint32_t>(seam.norm)[column / 2]) *
                           widen(arch::global<uint32_t>(seam.logit)[column / 2]);
  float mine = 0;
  const auto keep = [&](uint32_t lane, Float2 a, Float2 b) {
    const float product = sum_lanes<64>(arch::fma(a.y, b.y, a.x * b.x));
    mine = context.lane == lane ? product : mine;
  };

  // Everything about the blocks comes before the wait: only the prefix's products are on the critical path.
#pragma unroll
  for (uint32_t t = 0; t < abi::MAX_BLOCKS; ++t) {
    if (t < sources.num_blocks) {
      sources.pair[t] = *arch::global<uint32_t>(block_row + uint64_t(t) * args.block_stride * 2);
      keep(dot_lane(t), widen(sources.pair[t]), direction);
#pragma unroll
      for (uint32_t s = 0; s <= t; ++s) keep(gram_lane(t, s), widen(sources.pair[t]), widen(sources.pair[s]));
    }
  }

  uint32_t prefix = 0;
  if (!(mlp && writes_block)) prefix = *arch::global<uint32_t>(prefix_at);
  const uint32_t output_region = mlp ? G::kAttentionOutData : G::kOutputData;
  const bool in_memory = !mlp && context.layer_in_run == 0;
  uint32_t update = 0;
  if (!in_memory) {
    const uint32_t tag = mlp ? context.tag() : context.tag() - 1;
    update = all_reduced_pair<G>(context, stage, tag, true, output_region, G::kHidden, row, column);
  } else if (args.flags & abi::HAS_DELTA) {
    update = *arch::global<uint32_t>(args.delta + (uint64_t(row) * G::kHidden + column) * 2);
  }
  // A block-write layer restarts the prefix at its attention output.
  prefix = mlp && writes_block ? update : narrow(widen(prefix) + widen(update));
  sources.pair[kPrefixSource] = prefix;
  if (!context.failed) {
    *arch::global<uint32_t>(prefix_at) = prefix;
    if (!mlp && writes_block)
      *arch::global<uint32_t>(block_row + uint64_t(layer.block_write) * args.block_stride * 2) = prefix;
  }

  keep(dot_lane(kPrefixSource), widen(prefix), direction);
#pragma unroll
  for (uint32_t s = 0; s < abi::MAX_BLOCKS; ++s)
    if (s < sources.num_blocks) keep(gram_lane(kPrefixSource, s), widen(prefix), widen(sources.pair[s]));
  keep(gram_lane(kPrefixSource, kPrefixSource), widen(prefix), widen(prefix));

  const uint32_t data = mlp ? G::kMlpDotsData : G::kAttentionDotsData;
  const Span dots = context.scratch(data, abi::MAX_ROWS * G::kSlices * abi::SEAM_VALUES * 4);
  dots.store4<Scope::kDevice>((task * abi::SEAM_VALUES + context.lane) * 4, as_bits(mine));
  publish_wave(context, mlp ? G::kMlpDotsFlags : G::kAttentionDotsFlags, task);
  return sources;
}

}  // namespace specdec
