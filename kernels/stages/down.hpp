// Stages expert_down and shared_down (ExpertDown, SharedDown): what follows the experts' hidden, behind one wait.
//   reads   regions ExpertHidden and SharedHidden; w2 and its scales; shared down
//   writes  LatentOut pairs (routed, folded in slot order); Output pairs of other ranks' columns; own columns to LDS
//   work    a workgroup per 16 latent columns, then per 16 hidden columns; a wave takes every 8th expert of the union
//   sync    waits for all of both hiddens at once, with the weights of both stages in flight
#pragma once

#include "stages/expert_up.hpp"

namespace specdec {

// Own-column tiles that this workgroup keeps from shared_down for up.
SPECDEC_SHARED uint32_t own_shared[abi::OWN_TILES][abi::MAX_ROWS][abi::TILE / 2];

// Weighted contributions of every pick to 16 latent columns, bf16.
template <class G>
SPECDEC_SHARED uint16_t contributions[abi::MAX_ROWS][G::kTopK][abi::TILE];

// A wave's slice of w2: up to kDepth experts of one tile in flight.
template <class G>
struct ExpertDownRing {
  static constexpr uint32_t kSteps = G::kInter / 128, kDepth = 4;
  static constexpr uint32_t kScaleWords = (kSteps + 1) / 2;
  static_assert(kSteps * 128 == G::kInter && kSteps <= 4, "whole steps, one token scale word");
  Uint4 weights[kDepth][kSteps];
  uint32_t scales[kDepth][kScaleWords];

  SPECDEC_DEVICE void load(const Context& context, Descriptor& layer, uint32_t tile, uint32_t index, uint32_t slot) {
    constexpr uint32_t kRowBytes = G::kInter / 2, kExpertBytes = G::kLatentWidth * kRowBytes;
    constexpr uint32_t kScaleRow = (G::kInter / abi::MX_GROUP + 7) / 8 * 8, kScaleBytes = G::kLatentWidth * kScaleRow;
    const uint32_t expert = arch::uniform(routing<G>.expert[index]);
    const Span codes(layer.w2 + uint64_t(expert) * kExpertBytes, kExpertBytes);
    const Span codes8(layer.w2_scale + uint64_t(expert) * kScaleBytes, kScaleBytes);
#pragma unroll
    for (uint32_t s = 0; s < kSteps; ++s)
      weights[slot][s] = codes.load16<Scope::kStream>(context.lane * 16 + s * 1024,
                                                      tile * (abi::TILE * kRowBytes));
#pragma unroll
    for (uint32_t w = 0; w < kScaleWords; ++w)
      scales[slot][w] = codes8.load4<Scope::kStream>(context.lane * 4 + w * 256,
                                                     tile / 2 * (32 * kScaleRow));
  }
  SPECDEC_DEVICE void define(uint32_t slot) {
#pragma unroll
    for (uint32_t s = 0; s < kSteps; ++s) arch::define(weights[slot][s]);
#pragma unroll
    for (uint32_t w = 0; w < kScaleWords; ++w) arch::define(scales[slot][w]);
  }
  SPECDEC_DEVICE void define() {
#pragma unroll
    for (uint32_t slot = 0; slot < kDepth; ++slot) define(slot);
  }
  // The first experts of this wave; a tile that is not there leaves the ring as it is.
  SPECDEC_DEVICE void fill(const Context& context, Descriptor& layer, uint32_t tile) {
    const uint32_t num_union = tile < G::kLatentWidth / abi::TILE ? arch::uniform(routing<G>.num_union) : 0;
#pragma unroll
    for (uint32_t slot = 0; slot < kDepth; ++slot) {
      const uint32_t index = context.wave + slot * abi::WAVES;
      if (index < num_union)
        load(context, layer, tile, index, slot);
      else
        define(slot);
    }
  }
};

template <class G, uint32_t kStep>
SPECDEC_DEVICE Float4 expert_down_steps(const ExpertDownRing<G>& ring, uint32_t slot, uint32_t shift,
                                        const Uint4* hidden, uint32_t hidden_scales, Float4 sum) {
  if constexpr (kStep < ExpertDownRing<G>::kSteps) {
    sum = arch::mfma_fp4<kStep % 2 * 2, kStep>(ring.weights[slot][kStep], hidden[kStep], sum,
                                               ring.scales[slot][kStep / 2] >> shift, hidden_scales);
    return expert_down_steps<G, kStep + 1>(ring, slot, shift, hidden, hidden_scales, sum);
  }
  return sum;
}

// One expert's contribution to every row that picked it: c = bf16(w * (h . w2)).
template <class G>
SPECDEC_DEVICE void expert_contribution(const Context& context, const ExpertDownRing<G>& ring, uint32_t ring_slot,
                                        uint32_t tile, uint32_t index) {
  using Ring = ExpertDownRing<G>;
  auto& shared = routing<G>;
  constexpr uint32_t kCodeBytes = G::kInter / 2, kScales = abi::MAX_ROWS * G::kTopK * kCodeBytes;
  constexpr uint32_t kBytes = kScales + abi::MAX_ROWS * G::kTopK * abi::HIDDEN_SCALE_BYTES;
  const Span hidden_span = context.scratch(G::kExpertHiddenData, kBytes);
  const uint32_t token = context.lane % 16, block = context.lane / 16;
  const uint32_t slot = shared.slot[index][token];
  // A row without this expert reads past the span: zeros, with a scale of 2^-127.
  const uint32_t pick = slot == kNoSlot ? kBytes : token * G::kTopK + slot;
  Uint4 hidden[Ring::kSteps];
#pragma unroll
  for (uint32_t s = 0; s < Ring::kSteps; ++s)
    hidden[s] = hidden_span.load16<Scope::kDevice>(pick * kCodeBytes + block * 16 + s * 64);
  const uint32_t scales = hidden_span.load4<Scope::kDevice>(kScales + pick * abi::HIDDEN_SCALE_BYTES + block * 4);
  // A scale word holds an even and an odd tile's codes.
  const Float4 sum = arch::finish(
      expert_down_steps<G, 0>(ring, ring_slot, tile % 2 * 8, hidden, scales, Float4{0, 0, 0, 0}));
  if (slot == kNoSlot) return;
  const float weight = shared.weight[token][slot];
  auto* out = reinterpret_cast<uint32_t*>(&contributions<G>[token][slot][block * 4]);
  out[0] = narrow(Float2{sum.x * weight, sum.y * weight});
  out[1] = narrow(Float2{sum.z * weight, sum.w * weight});
}

template <class G>
SPECDEC_DEVICE void expert_down_tile(Context& context, Descriptor& layer, ExpertDownRing<G>& ring, uint32_t tile,
                                     uint32_t next_tile) {
  using Ring = ExpertDownRing<G>;
  const uint32_t num_union = arch::uniform(routing<G>.num_union);
  for (uint32_t base = context.wave; base < num_union; base += Ring::kDepth * abi::WAVES) {
#pragma unroll
    for (uint32_t slot = 0; slot < Ring::kDepth; ++slot) {
      const uint32_t index = base + slot * abi::WAVES;
      if (index >= num_union) break;
      expert_contribution<G>(context, ring, slot, tile, index);
      const uint32_t next = index + Ring::kDepth * abi::WAVES;
      if (next < num_union) ring.load(context, layer, tile, next, slot);
    }
  }
  ring.fill(context, layer, next_tile);
  context.barrier();
  // Slot order, a rounding after each: what the model was trained to see (spec/numerics.md §5.8).
  const uint32_t row = context.thread / 8, pair = context.thread % 8;
  if (row < context.rows) {
    Float2 sum = {0, 0};
    for (uint32_t k = 0; k < G::kTopK; ++k)
      sum = widen(narrow(sum + widen(reinterpret_cast<uint32_t*>(contributions<G>[row][k])[pair])));
    const uint32_t column = tile * abi::TILE + pair * 2;
    push_partial<G::kRanks>(context, G::kLatentOutData, row, G::kLatentWidth, column, sum);
  }
  context.barrier();
}

// Tiles of shared_down: this rank's own columns first, in the order of up, then the other ranks'.
template <class G>
SPECDEC_DEVICE uint32_t shared_down_column(const Context& context, uint32_t task) {
  const uint32_t column = context.rank * G::kUpRows + task * abi::TILE;
  return column < G::kHidden ? column : column - G::kHidden;
}

template <class G>
SPECDEC_DEVICE void down(Context& context, Descriptor& layer) {
  context.enter_stage();
  const uint32_t expert_first = context.place(Stage::ExpertDown);
  const uint32_t expert_tasks = context.tasks(Stage::ExpertDown).tasks;
  const Share share = context.share(Stage::SharedDown);
  const auto locate = [&](uint32_t task) {
    return WeightTile{layer.shared_down, G::kHidden * G::kShared * 2,
                      shared_down_column<G>(context, task) * (G::kShared * 2), 0};
  };
  ExpertDownRing<G> ring;
  Gemv<G::kShared> gemv;
  fill_and_wait(
      context,
      [&] {
        ring.fill(context, layer, expert_first);
        gemv.prefetch(context, share, locate);
      },
      [&] {
        ring.define();
        gemv.define();
      },
      [&] {
        const uint32_t experts = arch::uniform(routing<G>.num_union) * G::kGroups;
        if (expert_first < expert_tasks)
          wait_flags(context, Stage::ExpertDown, G::kExpertHiddenFlags, context.producers(experts));
        wait_flags(context, Stage::SharedDown, G::kSharedHiddenFlags, context.producers(G::kShared / abi::SHARED_COLUMNS));
      });
  for (uint32_t tile = expert_first; tile < expert_tasks; tile += context.grid)
    expert_down_tile<G>(context, layer, ring, tile, tile + context.grid);

  gemv.template load_tokens<Scope::kDevice>(context,
                                            context.scratch(G::kSharedHiddenData, context.rows * G::kShared * 2));
  gemv.run(context, share, locate, [&](uint32_t task, uint32_t token, uint32_t row, Float2 sums) {
    if (task < G::kUpRows / abi::TILE) {
      own_shared[task / share.stride][token][row / 2] = narrow(sums);
    } else {
      const uint32_t column = shared_down_column<G>(context, task) + row;
      push_partial<G::kRanks>(context, G::kOutputData, token, G::kHidden, column, sums);
    }
  });
}

}  // namespace specdec
