// Stage up (Up): the normalised latent times this rank's up rows, added to the shared part (spec/numerics.md §5.11).
//   reads   region LatentZ; the own-column sums that shared_down kept in LDS
//   writes  Output pairs of this rank's columns: one rounding of shared + up
//   work    a workgroup per tile of 16 of this rank's hidden columns, the workgroup of shared_down's same tile
//   sync    waits for every (row, slice) flag of z
#pragma once

#include "stages/down.hpp"
#include "stages/latent_norm.hpp"

namespace specdec {

// zn = bf16(z * rsqrt(mean z^2 + eps) * w), as matrix operands.
template <class G>
SPECDEC_DEVICE void load_normalised_latent(Context& context, Descriptor& layer, Gemv<G::kLatentWidth>& gemv) {
  const Span z = context.scratch(G::kLatentZData, LatentZ<G>::kBytes);
  const uint32_t token = context.lane % 16;
  const bool there = token < context.rows;
  float squares = 0;
#pragma unroll
  for (uint32_t slice = 0; slice < G::kLatentSlices; ++slice)
    squares += there ? as_float(z.load4<Scope::kDevice>(LatentZ<G>::kSquares + (token * G::kLatentSlices + slice) * 4)) : 0;
  const float scale = arch::rsqrt(squares / float(G::kLatentWidth) + layer.latent_eps);
#pragma unroll
  for (uint32_t s = 0; s < gemv.kSteps; ++s) {
    const uint32_t column = gemv.column(context, s);
    const Uint4 value = z.load16<Scope::kDevice>(there ? (token * G::kLatentWidth + column) * 2 : LatentZ<G>::kBytes);
    const Uint4 weight = arch::global<Uint4>(layer.latent_norm)[column / 8];
    Uint4 operand;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) operand[i] = narrow(widen(value[i]) * scale * widen(weight[i]));
    gemv.tokens[s] = __builtin_bit_cast(Bf16x8, operand);
  }
}

template <class G>
SPECDEC_DEVICE void up(Context& context, Descriptor& layer) {
  context.enter_stage();
  const Share share = context.share(Stage::Up);
  if (share.empty()) return;
  constexpr uint32_t kTileBytes = abi::TILE * G::kLatentWidth * 2;
  const auto locate = [&](uint32_t task) {
    return WeightTile{layer.up, G::kUpRows * G::kLatentWidth * 2, task * kTileBytes, 0};
  };
  Gemv<G::kLatentWidth> gemv;
  fill_and_wait(
      context, [&] { gemv.prefetch(context, share, locate); }, [&] { gemv.define(); },
      [&] { wait_flags(context, Stage::Up, G::kLatentZFlags, context.rows * G::kLatentSlices); });
  load_normalised_latent<G>(context, layer, gemv);
  gemv.run(context, share, locate, [&](uint32_t task, uint32_t token, uint32_t row, Float2 sums) {
    const Float2 shared = widen(own_shared[task / share.stride][token][row / 2]);
    const uint32_t column = context.rank * G::kUpRows + task * abi::TILE + row;
    push_partial<G::kRanks>(context, G::kOutputData, token, G::kHidden, column, shared + sums);
  });
}

}  // namespace specdec
