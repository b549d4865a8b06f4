// Stage seam_mix (AttentionMix, MlpMix): softmax over the sources, their mix, its norm (spec/numerics.md §3).
//   reads   region AttentionDots or MlpDots, all slices of the row; the sources that seam_dots left in registers
//   writes  region AttentionX or MlpX: bf16, one rounding
//   work    one wave per (row, slice), the same as in seam_dots; a lane owns two adjacent columns
//   sync    waits for its row's flags; a flag per (row, slice)
//
// The mix's mean square comes from the sources' Gram matrix, so the norm costs no exchange of its own.
#pragma once

#include "specdec/witness.hpp"
#include "stages/seam_dots.hpp"

namespace specdec {

// Lane v gets the sum over slices, in order, of value v.
template <class G>
SPECDEC_DEVICE float seam_totals(const Context& context, uint32_t data, uint32_t row) {
  const Span dots = context.scratch(data, abi::MAX_ROWS * G::kSlices * abi::SEAM_VALUES * 4);
  float total = 0;
#pragma unroll 8
  for (uint32_t slice = 0; slice < G::kSlices; ++slice)
    total += as_float(dots.load4<Scope::kDevice>(((row * G::kSlices + slice) * abi::SEAM_VALUES + context.lane) * 4));
  return total;
}

// The two sources whose product a lane holds.
struct GramEntry {
  uint32_t t = 0, s = 0;
  bool valid;

  SPECDEC_DEVICE explicit GramEntry(uint32_t lane)
      : valid(lane >= gram_lane(0, 0) && lane <= gram_lane(kPrefixSource, kPrefixSource)) {
#pragma unroll
    for (uint32_t row = 1; row <= kPrefixSource; ++row) t += lane >= gram_lane(row, 0) ? 1 : 0;
    s = valid ? lane - gram_lane(t, 0) : 0;
    t = valid ? t : 0;
  }
};

template <class G>
SPECDEC_DEVICE void seam_mix(Context& context, Descriptor& layer, bool mlp, SeamSources sources) {
  context.enter_stage();
  arch::forget_uniform(sources.num_blocks);
  const Stage stage = mlp ? Stage::MlpMix : Stage::AttentionMix;
  const uint32_t task = context.wave_task(stage);
  if (task >= context.tasks(stage).tasks) return;
  const uint32_t row = task / G::kSlices, slice = task % G::kSlices;
  const uint32_t column = slice * abi::SLICE + context.lane * 2;
  auto& seam = mlp ? layer.mlp_seam : layer.attention_seam;
  const Float2 output_weight = widen(arch::global<uint32_t>(seam.output)[column / 2]);
  wait_few_flags(context, stage, mlp ? G::kMlpDotsFlags : G::kAttentionDotsFlags, row * G::kSlices, G::kSlices);
  const float total = seam_totals<G>(context, mlp ? G::kMlpDotsData : G::kAttentionDotsData, row);

  // Lane s < MAX_BLOCKS + 1 holds source s; the lanes behind hold the Gram entries.
  const bool is_source = context.lane < sources.num_blocks || context.lane == kPrefixSource;
  const float self = as_float(arch::shuffle(as_bits(total), gram_lane(context.lane, context.lane) % abi::WAVE_SIZE));
  const float logit =
      is_source ? total * arch::rsqrt(self / float(G::kHidden) + seam.eps) : -__builtin_inff();
  const float largest = as_float(reduce<64>(as_bits(logit), MaxFloat{}));
  const float weight = arch::exp2((logit - largest) * kLog2E);
  const float denominator = sum_lanes<64>(weight);
  const GramEntry entry(context.lane);
  const float pair_weight = as_float(arch::shuffle(as_bits(weight), entry.t)) *
                            as_float(arch::shuffle(as_bits(weight), entry.s));
  const float square = sum_lanes<64>(entry.valid ? total * pair_weight * (entry.t == entry.s ? 1.0f : 2.0f) : 0.0f);
  Float2 mixed = {0, 0};
#pragma unroll
  for (uint32_t s = 0; s <= kPrefixSource; ++s)
    if (s < sources.num_blocks || s == kPrefixSource) mixed += arch::read_lane(weight, s) * widen(sources.pair[s]);
  const float scale = arch::rcp(denominator);
  // Entries of both signs: where sources cancel, rounding can take their sum below zero.
  const float mean_square = __builtin_fmaxf(square, 0.0f) * scale * scale / float(G::kHidden);
  const float rms = arch::rsqrt(mean_square + seam.output_eps);
  const Span x = context.scratch(mlp ? G::kMlpXData : G::kAttentionXData, abi::MAX_ROWS * G::kHidden * 2);
  x.store4<Scope::kDevice>((row * G::kHidden + column) * 2, narrow(mixed * scale * rms * output_weight));
  publish_wave(context, mlp ? G::kMlpXFlags : G::kAttentionXFlags, task);

  const uint64_t witness = Witness<G>::block(context);
  if (witness != 0 && slice == 0 && is_source)
    Witness<G>::store(witness, G::kWitnessMix,
                      ((mlp ? abi::MAX_ROWS : 0) + row) * abi::WITNESS_SOURCES + context.lane,
                      as_bits(weight * scale));
}

}  // namespace specdec
