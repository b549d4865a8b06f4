// Stage route (Route): top-k of every row, the union of picked experts, the latent in MXFP4 (spec/numerics.md §5.3, 5.5).
//   reads   Logits and Latent pairs of every rank
//   writes  LDS of every workgroup: picks, weights, union, latent codes and scales
//   work    every workgroup does all of it: the same operations in the same order, so all ranks agree
//   sync    waits for the pairs of its rows
#pragma once

#include "specdec/gemv.hpp"
#include "specdec/witness.hpp"

namespace specdec {

constexpr uint32_t kNoSlot = 0xFF;

template <class G>
struct Routing {
  static constexpr uint32_t kWords = (G::kExperts + 31) / 32;
  static constexpr uint32_t kMaxUnion = abi::MAX_ROWS * G::kTopK;
  uint32_t picked[kWords];                             // a bit per expert that any row picked
  uint32_t pick[abi::MAX_ROWS][abi::MAX_TOP_K];        // expert, in slot order
  float weight[abi::MAX_ROWS][abi::MAX_TOP_K];
  uint16_t expert[kMaxUnion];                          // of the union, ascending
  uint8_t slot[kMaxUnion][abi::MAX_ROWS];              // where a row has that expert, or kNoSlot
  uint32_t num_union;
  // The latent as matrix operands: 16 bytes a lane and step, and scale bytes by block, four steps to a word.
  static constexpr uint32_t kHalfSteps = G::kLatentWidth / 128 / 2;
  static constexpr uint32_t kScaleWords = (kHalfSteps + 3) / 4;
  static constexpr uint32_t kCodeBytes = G::kLatentWidth / 2 + 16;  // padded against bank conflicts
  static_assert(kHalfSteps * 256 == G::kLatentWidth, "two halves of whole steps");
  uint8_t codes[abi::MAX_ROWS][kCodeBytes];
  uint8_t scales[abi::MAX_ROWS][2][4][kScaleWords * 4];
};
template <class G>
SPECDEC_SHARED Routing<G> routing;

// Order of keys as unsigned words; removed keys are 0, below every number. A NaN ranks last.
SPECDEC_DEVICE uint32_t sortable(float key) {
  const uint32_t bits = as_bits(key == key ? key : -3e38f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Top-k of one row by one wave: key descending, ties to the lower expert; weights sum in slot order.
template <class G>
SPECDEC_DEVICE void pick_experts(Context& context, Descriptor& layer, uint32_t row) {
  constexpr uint32_t kPerLane = (G::kExperts + 63) / 64;
  uint32_t logits[kPerLane];
  const bool active = context.lane < G::kExperts;
  static_assert(G::kExperts % 64 == 0 || G::kExperts < 64, "all lanes hold the same number of experts, or one at most");
  wait_pairs<kPerLane>(
      context, Stage::Route, context.tag(), active,
      [&](uint32_t i) { return G::kLogitsData + (row * G::kExperts + i * 64 + context.lane) * 8; },
      [&](uint32_t i) { return (i * 64 + context.lane) / G::kRouterRows; }, logits);
  uint32_t key[kPerLane];
  float score[kPerLane];
#pragma unroll
  for (uint32_t i = 0; i < kPerLane; ++i) {
    const float bias = active ? arch::global<float>(layer.router_bias)[i * 64 + context.lane] : 0;
    const float unbiased = sigmoid(as_float(logits[i]));
    score[i] = unbiased == unbiased ? unbiased : 0;
    key[i] = active ? sortable(unbiased + bias) : 0;
  }
  float sum = 0, mine = 0;
  uint32_t my_pick = 0;
  for (uint32_t k = 0; k < G::kTopK; ++k) {
    uint32_t best = 0;
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) best = key[i] > best ? key[i] : best;
    best = reduce<64>(best, Max{});
    uint32_t expert = abi::NONE;
#pragma unroll
    for (uint32_t i = kPerLane; i-- > 0;) expert = key[i] == best && active ? i * 64 + context.lane : expert;
    expert = arch::uniform(reduce<64>(expert, Min{}));
    // Only garbage rows can run out of keys: an index in range keeps them harmless.
    expert = expert < G::kExperts ? expert : 0;
    float won = 0;
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      const bool winner = i * 64 + context.lane == expert;
      won = winner ? score[i] : won;
      key[i] = winner ? 0 : key[i];
    }
    won = arch::read_lane(won, expert % 64);
    sum += won;
    mine = context.lane == k ? won : mine;
    my_pick = context.lane == k ? expert : my_pick;
  }
  if (context.lane < G::kTopK) {
    auto& shared = routing<G>;
    const float weight = mine * (1.0f / sum);
    shared.pick[row][context.lane] = my_pick;
    shared.weight[row][context.lane] = weight;
    arch::or_shared(shared.picked[my_pick / 32], 1u << my_pick % 32);
    const uint64_t witness = Witness<G>::block(context);
    if (witness != 0 && context.cta == 0) {
      const uint32_t index = row * abi::MAX_TOP_K + context.lane;
      Witness<G>::store(witness, G::kWitnessPicks, index, my_pick);
      Witness<G>::store(witness, G::kWitnessPickWeights, index, as_bits(weight));
    }
  }
}

// The union's order is the experts': the same in every workgroup of every rank.
template <class G>
SPECDEC_DEVICE void unite_picks(Context& context) {
  auto& shared = routing<G>;
  const uint32_t row = context.thread / G::kTopK, k = context.thread % G::kTopK;
  if (row < context.rows) {
    const uint32_t expert = shared.pick[row][k];
    uint32_t index = 0;
    for (uint32_t word = 0; word < expert / 32; ++word) index += __builtin_popcount(shared.picked[word]);
    index += __builtin_popcount(shared.picked[expert / 32] & ((1u << expert % 32) - 1));
    shared.expert[index] = uint16_t(expert);
    shared.slot[index][row] = uint8_t(k);
  }
  if (context.thread == 0) {
    uint32_t total = 0;
    for (uint32_t word = 0; word < Routing<G>::kWords; ++word) total += __builtin_popcount(shared.picked[word]);
    shared.num_union = total;
  }
}

// Eight columns a lane, so that four neighbouring lanes hold one MX group.
template <class G>
SPECDEC_DEVICE void quantise_latent(Context& context) {
  auto& shared = routing<G>;
  constexpr uint32_t kPieces = G::kLatentWidth / 8;
  const uint64_t witness = Witness<G>::block(context);
  for (uint32_t index = context.thread; index < abi::MAX_ROWS * kPieces; index += abi::BLOCK) {
    const uint32_t row = index / kPieces, piece = index % kPieces;
    uint32_t pairs[4];
    wait_pairs<4>(
        context, Stage::Route, context.tag(), row < context.rows,
        [&](uint32_t i) { return G::kLatentData + (row * (G::kLatentWidth / 2) + piece * 4 + i) * 8; },
        [&](uint32_t) { return piece * 8 / G::kLatentRows; }, pairs);
    float amax = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const Float2 value = widen(pairs[i]);
      amax = __builtin_fmaxf(amax, __builtin_fmaxf(__builtin_fabsf(value.x), __builtin_fabsf(value.y)));
    }
    amax = as_float(reduce<4>(as_bits(amax), MaxFloat{}));
    const uint32_t code = mx_code(amax);
    const float scale = mx_scale(code);
    uint32_t word = arch::pack_fp4<0>(0, __builtin_bit_cast(Bf16x2, pairs[0]), scale);
    word = arch::pack_fp4<1>(word, __builtin_bit_cast(Bf16x2, pairs[1]), scale);
    word = arch::pack_fp4<2>(word, __builtin_bit_cast(Bf16x2, pairs[2]), scale);
    word = arch::pack_fp4<3>(word, __builtin_bit_cast(Bf16x2, pairs[3]), scale);
    *reinterpret_cast<uint32_t*>(&shared.codes[row][piece * 4]) = word;
    const uint32_t group = piece / 4, step = group / 4, half = step / Routing<G>::kHalfSteps;
    if (piece % 4 == 0) shared.scales[row][half][group % 4][step % Routing<G>::kHalfSteps] = uint8_t(code);
    if (witness != 0 && context.cta == 0 && row < context.rows) {
      Witness<G>::store(witness, G::kWitnessCodes, row * kPieces + piece, word);
      if (piece % 4 == 0)
        arch::global<uint8_t>(witness + G::kWitnessScales)[row * (kPieces / 4) + group] = uint8_t(code);
    }
  }
}

template <class G>
SPECDEC_DEVICE void route(Context& context, Descriptor& layer) {
  context.enter_stage();
  auto& shared = routing<G>;
  if (context.thread < Routing<G>::kWords) shared.picked[context.thread] = 0;
  for (uint32_t i = context.thread; i < sizeof(shared.slot) / 4; i += abi::BLOCK)
    reinterpret_cast<uint32_t*>(shared.slot)[i] = 0xFFFFFFFFu;
  // Steps that fill up a scale word are never used, but they are read.
  for (uint32_t i = context.thread; i < sizeof(shared.scales) / 4; i += abi::BLOCK)
    reinterpret_cast<uint32_t*>(shared.scales)[i] = 0;
  context.barrier();
  for (uint32_t row = context.wave; row < context.rows; row += abi::WAVES) pick_experts<G>(context, layer, row);
  context.barrier();
  unite_picks<G>(context);
  quantise_latent<G>(context);
  context.barrier();
}

}  // namespace specdec
