// Stage expert_up (ExpertUp): gate and up of every picked expert, SiTU, MXFP4 (spec/numerics.md §5.6, 5.7).
//   reads   LDS of route; w13 and its scales
//   writes  region ExpertHidden: 16 bytes of codes and a scale byte per (row, slot, group of 32)
//   work    a workgroup per (expert of the union, group): waves take 2 gate and 2 up tiles, each in two K halves
//   sync    none on entry; a flag per workgroup
#pragma once

#include "stages/route.hpp"

namespace specdec {

// The tile of one wave: 16 rows of the expert's gate or up rows, one half of K.
template <class G>
struct ExpertUpTile {
  static constexpr uint32_t kSteps = Routing<G>::kHalfSteps;
  static constexpr uint32_t kPairs = (kSteps + 1) / 2;
  static_assert(kSteps == 1 || kSteps % 2 == 0, "a scale word holds two steps");
  Uint4 weights[kSteps];
  uint32_t scales[kPairs];  // as loaded: `shift` brings the tile's codes to the bytes that the steps name
  uint32_t shift;

  SPECDEC_DEVICE void load(const Context& context, Descriptor& layer, uint32_t expert, uint32_t group) {
    const uint32_t part = context.wave % 4, half = context.wave / 4;  // gate low, gate high, up low, up high
    const uint32_t tile = part / 2 * (G::kInter / abi::TILE) + group * 2 + part % 2;
    constexpr uint32_t kRowBytes = G::kLatentWidth / 2, kExpertBytes = 2 * G::kInter * kRowBytes;
    const Span codes(layer.w13 + uint64_t(expert) * kExpertBytes, kExpertBytes);
#pragma unroll
    for (uint32_t s = 0; s < kSteps; ++s)
      weights[s] = codes.load16<Scope::kStream>(context.lane * 16 + s * 1024,
                                                tile * (abi::TILE * kRowBytes) + half * kSteps * 1024);
    constexpr uint32_t kScaleRow = G::kLatentWidth / abi::MX_GROUP, kScaleBytes = 2 * G::kInter * kScaleRow;
    static_assert(kScaleRow % 8 == 0, "no padding columns in w13's scales");
    const Span codes8(layer.w13_scale + uint64_t(expert) * kScaleBytes, kScaleBytes);
    const uint32_t first_pair = half * kSteps / 2;
    shift = tile % 2 * 8 + half * kSteps % 2 * 16;
#pragma unroll
    for (uint32_t p = 0; p < kPairs; ++p)
      scales[p] = codes8.load4<Scope::kStream>(context.lane * 4 + p * 256,
                                               tile / 2 * (32 * kScaleRow) + first_pair * 256);
  }
};

template <class G, uint32_t kStep>
SPECDEC_DEVICE Float4 expert_up_steps(const ExpertUpTile<G>& tile, const Uint4* latent, const uint32_t* scales,
                                      Float4 sum) {
  if constexpr (kStep < ExpertUpTile<G>::kSteps) {
    sum = arch::mfma_fp4<kStep % 2 * 2, kStep % 4>(tile.weights[kStep], latent[kStep], sum, tile.scales[kStep / 2] >> tile.shift,
                                                   scales[kStep / 4]);
    return expert_up_steps<G, kStep + 1>(tile, latent, scales, sum);
  }
  return sum;
}

// One (row, column) a thread: SiTU over the two halves' sums, then the group's codes.
template <class G>
SPECDEC_DEVICE void store_expert_hidden(const Context& context, uint32_t index, uint32_t group) {
  auto& shared = routing<G>;
  const uint32_t row = context.thread / 32, column = context.thread % 32;
  const uint32_t part = column / 16, at = column % 4 * 64 + column % 16 / 4 * 16 + row;
  const float gate = tile_sums[0][part][at] + tile_sums[0][4 + part][at];
  const float up = tile_sums[0][2 + part][at] + tile_sums[0][6 + part][at];
  const float hidden = situ_routed(gate, up);
  const float amax = as_float(reduce<32>(as_bits(__builtin_fabsf(hidden)), MaxFloat{}));
  const float neighbour = as_float(arch::partner<2>(as_bits(hidden)));
  const uint32_t slot = shared.slot[index][row];
  if (slot == kNoSlot) return;
  const uint32_t code = mx_code(amax);
  const uint32_t pick = row * G::kTopK + slot;
  constexpr uint32_t kCodeBytes = G::kInter / 2, kScales = abi::MAX_ROWS * G::kTopK * kCodeBytes;
  const Span out = context.scratch(G::kExpertHiddenData, kScales + abi::MAX_ROWS * G::kTopK * abi::HIDDEN_SCALE_BYTES);
  if (column % 2 == 0)
    out.store1<Scope::kDevice>(pick * kCodeBytes + group * 16 + column / 2,
                               uint8_t(arch::pack_fp4<0>(0, Float2{hidden, neighbour}, mx_scale(code))));
  if (column == 0)
    out.store1<Scope::kDevice>(kScales + pick * abi::HIDDEN_SCALE_BYTES + group % 4 * 4 + group / 4, uint8_t(code));
}

template <class G>
SPECDEC_DEVICE void expert_up(Context& context, Descriptor& layer) {
  context.enter_stage();
  using Tile = ExpertUpTile<G>;
  auto& shared = routing<G>;
  const uint32_t first = context.place(Stage::ExpertUp);
  const uint32_t num_tasks = arch::uniform(shared.num_union) * G::kGroups;
  if (first >= num_tasks) return;
  const uint32_t half = context.wave / 4, token = context.lane % 16, block = context.lane / 16;
  Uint4 latent[Tile::kSteps];
  uint32_t latent_scales[Routing<G>::kScaleWords];
#pragma unroll
  for (uint32_t s = 0; s < Tile::kSteps; ++s)
    latent[s] = *reinterpret_cast<const Uint4*>(&shared.codes[token][(half * Tile::kSteps + s) * 64 + block * 16]);
#pragma unroll
  for (uint32_t w = 0; w < Routing<G>::kScaleWords; ++w)
    latent_scales[w] = *reinterpret_cast<const uint32_t*>(&shared.scales[token][half][block][w * 4]);
  Tile tile;
  tile.load(context, layer, arch::uniform(shared.expert[first / G::kGroups]), first % G::kGroups);
  for (uint32_t task = first; task < num_tasks; task += context.grid) {
    const uint32_t index = task / G::kGroups, group = task % G::kGroups;
    const Float4 sum = arch::finish(expert_up_steps<G, 0>(tile, latent, latent_scales, Float4{0, 0, 0, 0}));
    // The next task's weights travel while this one's epilogue runs.
    const uint32_t next = task + context.grid;
    if (next < num_tasks)
      tile.load(context, layer, arch::uniform(shared.expert[next / G::kGroups]), next % G::kGroups);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) tile_sums[0][context.wave][i * 64 + context.lane] = sum[i];
    context.barrier();
    store_expert_hidden<G>(context, index, group);
    context.barrier();
  }
  publish(context, G::kExpertHiddenFlags, first);
}

}  // namespace specdec
