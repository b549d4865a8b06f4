// Stage latent_norm (LatentNorm): all-reduce of the routed latent, and the squares of its norm (spec/numerics.md §5.9).
//   reads   LatentOut pairs of every rank
//   writes  region LatentZ: z bf16, and a sum of squares per (row, slice)
//   work    one wave per (row, slice of 128 columns); a lane owns two adjacent columns
//   sync    waits for the pairs of its columns; a flag per (row, slice)
#pragma once

#include "stages/seam_dots.hpp"

namespace specdec {

template <class G>
struct LatentZ {
  static constexpr uint32_t kSquares = abi::MAX_ROWS * G::kLatentWidth * 2;
  static constexpr uint32_t kBytes = kSquares + abi::MAX_ROWS * G::kLatentSlices * 4;
};

template <class G>
SPECDEC_DEVICE void latent_norm(Context& context) {
  context.enter_stage();
  const uint32_t task = context.wave_task(Stage::LatentNorm);
  if (task >= context.tasks(Stage::LatentNorm).tasks) return;
  const uint32_t row = task / G::kLatentSlices, slice = task % G::kLatentSlices;
  const uint32_t column = slice * abi::SLICE + context.lane * 2;
  const uint32_t z = all_reduced_pair<G>(context, Stage::LatentNorm, context.tag(), true, G::kLatentOutData,
                                         G::kLatentWidth, row, column);
  const Float2 value = widen(z);
  const float squares = sum_lanes<64>(arch::fma(value.y, value.y, value.x * value.x));
  const Span out = context.scratch(G::kLatentZData, LatentZ<G>::kBytes);
  out.store4<Scope::kDevice>((row * G::kLatentWidth + column) * 2, z);
  if (context.lane == 0) out.store4<Scope::kDevice>(LatentZ<G>::kSquares + task * 4, as_bits(squares));
  publish_wave(context, G::kLatentZFlags, task);
}

}  // namespace specdec
