// Stage o_proj (OProj): the gated norm's scale, the output projection, and the convolution state.
//   reads   region Core (KDA), or `core` bf16 in memory (an MLA layer's first stage); region Proj
//   writes  AttentionOut pairs of this rank to every rank; the convolution state of every request
//   work    a workgroup per tile of 16 hidden columns; a workgroup per (request, head) of the state
//   sync    waits for all of Core: then nobody reads the old convolution state any more
#pragma once

#include "stages/kda.hpp"

namespace specdec {

// core = bf16(o w sigmoid(g) * rsqrt(mean o^2 + eps)), as matrix operands.
template <class G>
SPECDEC_DEVICE void load_normalised_core(Context& context, Descriptor& layer, Gemv<G::kProj>& gemv) {
  constexpr uint32_t kSquares = abi::MAX_ROWS * G::kProj * 4;
  static_assert(G::kChunks == 8, "two loads of partial sums a head");
  constexpr uint32_t kBytes = kSquares + abi::MAX_ROWS * G::kHeads * G::kChunks * 4;
  const Span core = context.scratch(G::kCoreData, kBytes);
  const uint32_t token = context.lane % 16;
  const bool there = token < context.rows;
#pragma unroll
  for (uint32_t s = 0; s < gemv.kSteps; ++s) {
    const uint32_t column = gemv.column(context, s), head = column / G::kHeadDim;
    // Rows past the step's read past the span: zeros.
    const uint32_t squares_at = there ? kSquares + (token * G::kHeads + head) * (G::kChunks * 4) : kBytes;
    const uint32_t value_at = there ? (token * G::kProj + column) * 4 : kBytes;
    float squares = 0;
    Float4 value[2];
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const Float4 part = __builtin_bit_cast(Float4, core.load16<Scope::kDevice>(squares_at + half * 16));
      squares += part.x, squares += part.y, squares += part.z, squares += part.w;
      value[half] = __builtin_bit_cast(Float4, core.load16<Scope::kDevice>(value_at + half * 16));
    }
    const float scale = arch::rsqrt(squares / float(G::kHeadDim) + layer.o_norm_eps);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) gemv.tokens[s][i] = __bf16(value[i / 4][i % 4] * scale);
  }
}

// new state = [state[a + 1], state[a + 2], x_0 .. x_{q-1}], a thread per channel of the head's q, k and v.
template <class G>
SPECDEC_DEVICE void store_conv_state(Context& context, Descriptor& layer, uint32_t request, uint32_t head) {
  const StateSlots slots = state_slots(context, layer, request);
  if (slots.conv <= 0 || context.failed || context.thread >= 3 * G::kHeadDim) return;
  const uint32_t q = context.args().rows_per_request;
  const uint32_t channel =
      context.thread / G::kHeadDim * G::kProj + head * G::kHeadDim + context.thread % G::kHeadDim;
  auto* state = arch::global<uint16_t>(layer.conv_state + (uint64_t(uint32_t(slots.conv)) * layer.conv_slot_stride +
                                                           uint64_t(channel) * layer.conv_channel_stride) * 2);
  const uint32_t stride = layer.conv_token_stride;
  const uint16_t kept[2] = {state[(slots.accepted_before + 1) * stride], state[(slots.accepted_before + 2) * stride]};
  const Span proj = context.scratch(G::kProjData, abi::MAX_ROWS * G::kInProjRows * 2);
  state[0] = kept[0];
  state[stride] = kept[1];
  for (uint32_t j = 0; j < q; ++j)
    state[(j + 2) * stride] = proj.load2<Scope::kDevice>(((request * q + j) * G::kInProjRows + channel) * 2);
}

template <class G>
SPECDEC_DEVICE void o_proj(Context& context, Descriptor& layer) {
  context.enter_stage();
  const bool whole = layer.kind == uint32_t(abi::LayerKind::Whole);
  const Share share = context.share(Stage::OProj);
  if (share.empty()) return;
  constexpr uint32_t kTileBytes = abi::TILE * G::kProj * 2;
  const auto locate = [&](uint32_t task) {
    return WeightTile{layer.o_proj, G::kHidden * G::kProj * 2, task * kTileBytes, 0};
  };
  Gemv<G::kProj> gemv;
  fill_and_wait(
      context, [&] { gemv.prefetch(context, share, locate); }, [&] { gemv.define(); },
      [&] {
        if (whole)
          wait_flags(context, Stage::OProj, G::kCoreFlags, context.producers(context.tasks(Stage::Kda).tasks));
      });
  if (whole)
    load_normalised_core<G>(context, layer, gemv);
  else
    gemv.template load_tokens<Scope::kWave>(context, Span(context.args().core, context.rows * G::kProj * 2));
  gemv.run(context, share, locate, [&](uint32_t task, uint32_t token, uint32_t row, Float2 sums) {
    const uint32_t column = task * abi::TILE + row;
    push_partial<G::kRanks>(context, G::kAttentionOutData, token, G::kHidden, column, sums);
  });
  // Behind the pushes: the other ranks wait for those, nobody waits for this.
  if (whole)
    for (uint32_t task = share.first; task < context.args().requests * G::kHeads; task += share.stride)
      store_conv_state<G>(context, layer, task / G::kHeads, task % G::kHeads);
}

}  // namespace specdec
