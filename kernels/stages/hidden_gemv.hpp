// Stages in_proj and moe_in: everything that multiplies the normalised hidden row, one body for both.
//   reads   region AttentionX or MlpX, all of it
//   writes  in_proj: region Proj. moe_in: Logits and Latent pairs of this rank's rows; region SharedHidden
//   work    a workgroup per tile of 16 weight rows; a shared tile is 8 gate rows over their 8 up rows
//   sync    waits for every (row, slice) flag of x; a flag per workgroup for Proj and SharedHidden
#pragma once

#include "specdec/gemv.hpp"

namespace specdec {

// Tiles of moe_in, in this order.
template <class G>
struct MoeInTiles {
  static constexpr uint32_t kRouter = G::kRouterRows / abi::TILE;
  static constexpr uint32_t kLatent = G::kLatentRows / abi::TILE;
  static constexpr uint32_t kShared = G::kShared / abi::SHARED_COLUMNS;
  static constexpr uint32_t kFirstShared = kRouter + kLatent;
};

template <class G>
SPECDEC_DEVICE WeightTile moe_in_tile(Descriptor& layer, uint32_t task) {
  using Tiles = MoeInTiles<G>;
  constexpr uint32_t kTileBytes = abi::TILE * G::kHidden * 2;
  if (task < Tiles::kRouter) return {layer.router, G::kRouterRows * G::kHidden * 2, task * kTileBytes, 0};
  if (task < Tiles::kFirstShared)
    return {layer.latent_down, G::kLatentRows * G::kHidden * 2, (task - Tiles::kRouter) * kTileBytes, 0};
  return {layer.shared_gate_up, 2 * G::kShared * G::kHidden * 2, (task - Tiles::kFirstShared) * (kTileBytes / 2),
          G::kShared};
}

template <class G>
SPECDEC_DEVICE WeightTile in_proj_tile(Descriptor& layer, uint32_t task) {
  return {layer.in_proj, G::kInProjRows * G::kHidden * 2, task * (abi::TILE * G::kHidden * 2), 0};
}

template <class G>
SPECDEC_DEVICE void hidden_gemv(Context& context, Descriptor& layer, bool mlp) {
  context.enter_stage();
  using Tiles = MoeInTiles<G>;
  const Stage stage = mlp ? Stage::MoeIn : Stage::InProj;
  const Share share = context.share(stage);
  if (share.empty()) return;
  const auto locate = [&](uint32_t task) {
    return mlp ? moe_in_tile<G>(layer, task) : in_proj_tile<G>(layer, task);
  };
  Gemv<G::kHidden> gemv;
  fill_and_wait(
      context, [&] { gemv.prefetch(context, share, locate); }, [&] { gemv.define(); },
      [&] { wait_flags(context, stage, mlp ? G::kMlpXFlags : G::kAttentionXFlags, context.rows * G::kSlices); });
  gemv.template load_tokens<Scope::kDevice>(
      context, context.scratch(mlp ? G::kMlpXData : G::kAttentionXData, context.rows * G::kHidden * 2));

  const Span proj = context.scratch(G::kProjData, abi::MAX_ROWS * G::kInProjRows * 2);
  const Span shared = context.scratch(G::kSharedHiddenData, abi::MAX_ROWS * G::kShared * 2);
  gemv.run(context, share, locate, [&](uint32_t task, uint32_t token, uint32_t row, Float2 sums) {
    if (!mlp) {
      proj.store4<Scope::kDevice>((token * G::kInProjRows + task * abi::TILE + row) * 2, narrow(sums));
    } else if (task < Tiles::kRouter) {
      const uint32_t expert = context.rank * G::kRouterRows + task * abi::TILE + row;
      const uint32_t offset = G::kLogitsData + (token * G::kExperts + expert) * 8;
      push_pair<G::kRanks>(context, offset, as_bits(sums.x));
      push_pair<G::kRanks>(context, offset + 8, as_bits(sums.y));
    } else if (task < Tiles::kFirstShared) {
      const uint32_t column = context.rank * G::kLatentRows + (task - Tiles::kRouter) * abi::TILE + row;
      push_pair<G::kRanks>(context, G::kLatentData + (token * G::kLatentWidth + column) * 4, narrow(sums));
    } else {
      // A thread holds gate rows (row < 8) or up rows; its partner, 4 lanes on in the same token, the others.
      const Float2 rounded = widen(narrow(sums));
      const Float2 up = widen(arch::shuffle(narrow(rounded), context.lane ^ 4));
      const uint32_t column = (task - Tiles::kFirstShared) * abi::SHARED_COLUMNS + row;
      if (row < 8)
        shared.store4<Scope::kDevice>((token * G::kShared + column) * 2,
                                      narrow(Float2{situ_shared(rounded.x, up.x), situ_shared(rounded.y, up.y)}));
    }
  });
  if (!mlp) {
    publish(context, G::kProjFlags, share.first);
  } else if (share.end > Tiles::kFirstShared) {
    // Flags of SharedHidden count from the place of the first shared tile.
    const uint32_t start = Tiles::kFirstShared % context.grid, at = context.place(stage);
    const uint32_t index = at >= start ? at - start : at + context.grid - start;
    if (index < Tiles::kShared) publish(context, G::kSharedHiddenFlags, index);
  }
}

}  // namespace specdec
