// Stage kda (Kda): short convolution, gates, delta-rule recurrence with a state per drafted token, gated output
// (spec/numerics.md §4.2 to §4.5).
//   reads   region Proj; convolution and recurrent states; state slots and accepted counts
//   writes  recurrent state of every row's slot; region Core: f32 o * w * sigmoid(g), and sums of squares of o
//   work    a workgroup per (request, head, 16 value rows); in the recurrence a wave owns two value rows
//   sync    waits for all of Proj; a flag per workgroup
//
// The convolution state is stored later, by conv_state: sibling tasks of the head still read it here.
#pragma once

#include "specdec/gemv.hpp"

namespace specdec {

struct KdaShared {
  float query[abi::MAX_ROWS][abi::SLICE], key[abi::MAX_ROWS][abi::SLICE], decay[abi::MAX_ROWS][abi::SLICE];
  float value[abi::MAX_ROWS][abi::KDA_CHUNK], gate[abi::MAX_ROWS][abi::KDA_CHUNK];
  float output[abi::MAX_ROWS][abi::KDA_CHUNK];
  float beta[abi::MAX_ROWS];
};
SPECDEC_SHARED KdaShared kda_shared;

// State slots of one request, checked: an index or count out of range fails the step and acts as "no state".
struct StateSlots {
  uint64_t indices;  // of the request's row
  int32_t conv;      // <= 0: none
  int32_t start;     // <= 0: the request is a padding row
  uint32_t accepted_before;
};

SPECDEC_DEVICE int32_t load_index(uint64_t address) { return int32_t(arch::uniform(arch::load_system(address))); }

SPECDEC_DEVICE StateSlots state_slots(Context& context, Descriptor& layer, uint32_t request) {
  auto& args = context.args();
  auto& group = arch::constant<abi::StateGroup>(args.groups)[layer.state_group];
  StateSlots slots = {group.state_indices + uint64_t(request) * group.row_stride * 4, 0, 0, 0};
  const int32_t accepted = load_index(group.num_accepted + request * 4);
  const int32_t limit = int32_t(layer.num_slots);
  bool valid = accepted >= 1 && accepted <= int32_t(args.rows_per_request);
  int32_t bad = accepted;
  if (valid) {
    slots.accepted_before = uint32_t(accepted - 1);
    for (uint32_t j = 0; j < args.rows_per_request; ++j) {
      const int32_t slot = load_index(slots.indices + j * 4);
      if (slot >= limit) valid = false, bad = slot;
      if (j == 0) slots.conv = slot;
      if (j == slots.accepted_before) slots.start = slot;
    }
  }
  if (!valid) {
    slots.conv = slots.start = 0;
    if (context.thread == 0 && context.failed == 0)
      give_up(context, Stage::Kda, abi::FailureReason::Metadata, {true, request, uint32_t(bad), context.rank},
              uint32_t(limit));
    context.failed = 1;
  }
  return slots;
}

// Convolution, SiLU and rounding of one channel over the request's rows; `store(row, value)`.
template <class G, class Store>
SPECDEC_DEVICE void convolve(Context& context, Descriptor& layer, const StateSlots& slots, uint32_t request,
                             uint32_t channel, Store store) {
  const uint32_t q = context.args().rows_per_request;
  const Float4 weight = arch::global<Float4>(layer.conv)[channel];
  const uint64_t state = layer.conv_state + (uint64_t(uint32_t(slots.conv)) * layer.conv_slot_stride +
                                             uint64_t(channel) * layer.conv_channel_stride) * 2;
  float window[3] = {0, 0, 0};
  if (slots.conv > 0) {
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i)
      window[i] = bf16_to_float(
          arch::global<uint16_t>(state)[(slots.accepted_before + i) * layer.conv_token_stride]);
  }
  const Span proj = context.scratch(G::kProjData, abi::MAX_ROWS * G::kInProjRows * 2);
  for (uint32_t j = 0; j < q; ++j) {
    const uint32_t row = request * q + j;
    const float input = bf16_to_float(proj.load2<Scope::kDevice>((row * G::kInProjRows + channel) * 2));
    const float sum = weight.x * window[0] + weight.y * window[1] + weight.z * window[2] + weight.w * input;
    store(j, round_bf16(sum * sigmoid(sum)));
    window[0] = window[1], window[1] = window[2], window[2] = input;
  }
}

// decay = exp(bound * sigmoid(exp(A_log) * (f_b f_a + dt_bias))) of one head: a wave per 16 of its 128 key columns.
template <class G>
SPECDEC_DEVICE void decay_gates(Context& context, Descriptor& layer, uint32_t request, uint32_t head) {
  constexpr uint32_t kSteps = G::kHeadDim / 32;
  const uint32_t q = context.args().rows_per_request;
  const uint32_t token = context.lane % 16, quarter = context.lane / 16;
  const Span weights(layer.f_b, G::kProj * G::kHeadDim * 2);
  const Span proj = context.scratch(G::kProjData, abi::MAX_ROWS * G::kInProjRows * 2);
  const uint32_t weight_at = (head * G::kHeadDim + context.wave * abi::TILE + token) * (G::kHeadDim * 2) + quarter * 16;
  const uint32_t outside = abi::MAX_ROWS * G::kInProjRows * 2;
  const uint32_t token_at =
      token < q ? ((request * q + token) * G::kInProjRows + 4 * G::kProj) * 2 + quarter * 16 : outside;
  Float4 sum = {0, 0, 0, 0};
#pragma unroll
  for (uint32_t s = 0; s < kSteps; ++s)
    sum = arch::mfma(__builtin_bit_cast(Bf16x8, weights.load16<Scope::kStream>(weight_at + s * 64)),
                     __builtin_bit_cast(Bf16x8, proj.load16<Scope::kDevice>(token_at + s * 64)), sum);
  sum = arch::finish(sum);
  const uint32_t column = context.wave * abi::TILE + quarter * 4;
  const Float4 bias = *arch::global<Float4>(layer.dt_bias + (head * G::kHeadDim + column) * 4);
  const float rate = arch::exp2(arch::global<float>(layer.a_log)[head] * kLog2E);
  if (token < q) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
      kda_shared.decay[token][column + i] =
          arch::exp2(layer.gate_lower_bound * sigmoid(rate * (round_bf16(sum[i]) + bias[i])) * kLog2E);
  }
}

template <class G>
SPECDEC_DEVICE void kda_inputs(Context& context, Descriptor& layer, const StateSlots& slots, uint32_t request,
                               uint32_t head, uint32_t chunk) {
  const uint32_t q = context.args().rows_per_request, thread = context.thread;
  const uint32_t column = head * G::kHeadDim;
  const Span proj = context.scratch(G::kProjData, abi::MAX_ROWS * G::kInProjRows * 2);
  const auto load = [&](uint32_t j, uint32_t at) {
    return bf16_to_float(proj.load2<Scope::kDevice>(((request * q + j) * G::kInProjRows + at) * 2));
  };
  if (thread < G::kHeadDim) {
    convolve<G>(context, layer, slots, request, column + thread,
                [&](uint32_t j, float x) { kda_shared.query[j][thread] = x; });
  } else if (thread < 2 * G::kHeadDim) {
    const uint32_t k = thread - G::kHeadDim;
    convolve<G>(context, layer, slots, request, G::kProj + column + k,
                [&](uint32_t j, float x) { kda_shared.key[j][k] = x; });
  } else if (thread < 2 * G::kHeadDim + abi::KDA_CHUNK) {
    const uint32_t v = thread - 2 * G::kHeadDim;
    convolve<G>(context, layer, slots, request, 2 * G::kProj + column + chunk * abi::KDA_CHUNK + v,
                [&](uint32_t j, float x) { kda_shared.value[j][v] = x; });
  } else if (thread < 2 * G::kHeadDim + 2 * abi::KDA_CHUNK) {
    const uint32_t v = thread - 2 * G::kHeadDim - abi::KDA_CHUNK;
    for (uint32_t j = 0; j < q; ++j)
      kda_shared.gate[j][v] = sigmoid(load(j, 3 * G::kProj + column + chunk * abi::KDA_CHUNK + v));
  } else if (thread < 2 * G::kHeadDim + 2 * abi::KDA_CHUNK + abi::MAX_ROWS) {
    const uint32_t j = thread - 2 * G::kHeadDim - 2 * abi::KDA_CHUNK;
    if (j < q) kda_shared.beta[j] = sigmoid(load(j, 4 * G::kProj + G::kHeadDim + head));
  }
  decay_gates<G>(context, layer, request, head);
  context.barrier();
  // L2 norms of q and k, a wave per row; q takes the softmax-free scale with it.
  for (uint32_t j = context.wave; j < q; j += abi::WAVES) {
    float* query = &kda_shared.query[j][context.lane * 2];
    float* key = &kda_shared.key[j][context.lane * 2];
    const float query_scale = arch::rsqrt(sum_lanes<64>(query[0] * query[0] + query[1] * query[1]) + 1e-6f) *
                              0.08838834764831845f;  // head_dim ^ -0.5
    const float key_scale = arch::rsqrt(sum_lanes<64>(key[0] * key[0] + key[1] * key[1]) + 1e-6f);
    query[0] *= query_scale, query[1] *= query_scale;
    key[0] *= key_scale, key[1] *= key_scale;
  }
  static_assert(G::kHeadDim == 128, "the scale above and two columns a lane");
  context.barrier();
}

template <class G>
SPECDEC_DEVICE void recurrence(Context& context, Descriptor& layer, const StateSlots& slots, uint32_t head,
                               uint32_t chunk) {
  const uint32_t q = context.args().rows_per_request;
  const uint32_t row = context.wave * 2 + context.lane / 32, column = context.lane % 32 * 4;
  if (slots.start <= 0) {
    // Its rows are stale: their gate may be NaN.
    for (uint32_t j = 0; j < q; ++j) kda_shared.output[j][row] = kda_shared.gate[j][row] = 0;
    return;
  }
  const uint64_t element = ((uint64_t(head) * G::kHeadDim + chunk * abi::KDA_CHUNK + row) * G::kHeadDim + column) * 4;
  const auto slot_address = [&](int32_t slot) {
    return layer.recurrent_state + uint64_t(uint32_t(slot)) * layer.recurrent_slot_stride * 4 + element;
  };
  // The start slot is also some row's destination: it is read before anything is stored.
  Float4 state = *arch::global<Float4>(slot_address(slots.start));
  for (uint32_t j = 0; j < q; ++j) {
    const Float4 decay = *reinterpret_cast<Float4*>(&kda_shared.decay[j][column]);
    const Float4 key = *reinterpret_cast<Float4*>(&kda_shared.key[j][column]);
    const Float4 query = *reinterpret_cast<Float4*>(&kda_shared.query[j][column]);
    state *= decay;
    const auto dot = [&](Float4 with) {
      const float sum = arch::fma(state.w, with.w, arch::fma(state.z, with.z, arch::fma(state.y, with.y, state.x * with.x)));
      return sum_lanes<32>(sum);
    };
    const float update = (kda_shared.value[j][row] - dot(key)) * kda_shared.beta[j];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) state[i] = arch::fma(update, key[i], state[i]);
    kda_shared.output[j][row] = round_bf16(dot(query));
    const int32_t slot = load_index(slots.indices + j * 4);
    if (slot > 0 && !context.failed) *arch::global<Float4>(slot_address(slot)) = state;
  }
}

template <class G>
SPECDEC_DEVICE void kda(Context& context, Descriptor& layer) {
  context.enter_stage();
  const uint32_t first = context.place(Stage::Kda), num_tasks = context.tasks(Stage::Kda).tasks;
  if (first >= num_tasks) return;
  if (context.wave == 0)
    wait_flags(context, Stage::Kda, G::kProjFlags, context.producers(context.tasks(Stage::InProj).tasks));
  context.barrier();
  for (uint32_t task = first; task < num_tasks; task += context.grid) {
    const uint32_t chunk = task % G::kChunks, head = task / G::kChunks % G::kHeads;
    const uint32_t request = task / (G::kChunks * G::kHeads);
    const StateSlots slots = state_slots(context, layer, request);
    kda_inputs<G>(context, layer, slots, request, head, chunk);
    recurrence<G>(context, layer, slots, head, chunk);
    context.barrier();
    const uint32_t q = context.args().rows_per_request;
    const uint32_t j = context.thread / abi::KDA_CHUNK, v = context.thread % abi::KDA_CHUNK;
    const Span core = context.scratch(G::kCoreData, abi::MAX_ROWS * (G::kProj + G::kHeads * G::kChunks) * 4);
    if (j < q) {
      const uint32_t row = request * q + j, column = head * G::kHeadDim + chunk * abi::KDA_CHUNK + v;
      const float output = kda_shared.output[j][v];
      const float weight = bf16_to_float(arch::global<uint16_t>(layer.o_norm)[chunk * abi::KDA_CHUNK + v]);
      core.store4<Scope::kDevice>((row * G::kProj + column) * 4, as_bits(output * weight * kda_shared.gate[j][v]));
      const float squares = sum_lanes<16>(output * output);
      const uint32_t index = abi::MAX_ROWS * G::kProj + (row * G::kHeads + head) * G::kChunks + chunk;
      if (v == 0) core.store4<Scope::kDevice>(index * 4, as_bits(squares));
    }
    // The next task overwrites what this one's last lines read.
    context.barrier();
  }
  publish(context, G::kCoreFlags, first);
}

}  // namespace specdec
