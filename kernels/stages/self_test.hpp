// A step without layers, for start-up: every rank hands every rank a row of pairs, twice.
//   reads   AttentionOut pairs of every rank
//   writes  the same at every rank; the epoch
//   work    one workgroup; a wave a source, a lane a pair
//   sync    waits for the pairs, as a layer's stages do
//
// It fails where peer memory is cached after all, where a rank's device is not the one that its peers mapped, and, when
// a graph replays it, where a replay sees an older step number than the copy before it brought.
#pragma once

#include "stages/begin.hpp"

namespace specdec {

// No model has a layer of this number.
constexpr uint32_t kSelfTestLayer = abi::TAG_LAYERS - 3;

SPECDEC_DEVICE uint32_t self_test_payload(uint32_t tag, uint32_t source, uint32_t round, uint32_t lane) {
  return (tag ^ (source << 28 | round << 24 | lane)) * 0x9E3779B1u;
}

template <class G>
SPECDEC_DEVICE void self_test() {
  Context context = begin<G>(kSelfTestLayer);
  for (uint32_t round = 0; round < 2; ++round) {
    const auto offset = [&](uint32_t source) {
      return G::kAttentionOutData + ((source * abi::MAX_ROWS + round) * abi::WAVE_SIZE + context.lane) * 8;
    };
    if (context.wave == 0)
      push_pair<G::kRanks>(context, offset(context.rank),
                           self_test_payload(context.tag(), context.rank, round, context.lane));
    const uint32_t source = context.wave;
    uint32_t payload[1];
    if (source < G::kRanks) {
      wait_pairs<1>(
          context, Stage::Output, context.tag(), true, [&](int) { return offset(source); }, [&](int) { return source; },
          payload);
      const uint32_t expected = self_test_payload(context.tag(), source, round, context.lane);
      const uint64_t wrong = arch::ballot(payload[0] != expected);
      if (context.failed == 0 && wrong != 0) {
        if (context.lane == uint32_t(__builtin_ctzll(wrong)))
          give_up(context, Stage::Output, abi::FailureReason::Corrupt, {true, offset(source), payload[0], source},
                  expected);
      }
    }
    context.barrier();
  }
  if (context.thread == 0 && context.failed == 0)
    arch::store_system(context.header(kEpoch), arch::load_system(context.header(kEpoch)) + 1);
  end(context);
}

}  // namespace specdec
