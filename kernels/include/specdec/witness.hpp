// Values that live only in registers or LDS, stored when the launch asks for them, so that stages can be checked.
//
// One block a layer of the run: softmax weights of both seams, picks, and the latent's MXFP4 codes.
#pragma once

#include "specdec/mailbox.hpp"

namespace specdec {

template <class G>
struct Witness {
  static constexpr uint32_t kRowSources = 16;  // blocks, then the prefix at MAX_BLOCKS
  static constexpr uint32_t kMix = 0;          // f32 [2][MAX_ROWS][16]
  static constexpr uint32_t kPicks = kMix + 2 * abi::MAX_ROWS * kRowSources * 4;            // u32 [MAX_ROWS][16]
  static constexpr uint32_t kPickWeights = kPicks + abi::MAX_ROWS * abi::MAX_TOP_K * 4;     // f32 [MAX_ROWS][16]
  static constexpr uint32_t kCodes = kPickWeights + abi::MAX_ROWS * abi::MAX_TOP_K * 4;     // [MAX_ROWS][latent / 2]
  static constexpr uint32_t kScales = kCodes + abi::MAX_ROWS * G::kLatentWidth / 2;         // [MAX_ROWS][latent / 32]
  static constexpr uint32_t kBytes = kScales + abi::MAX_ROWS * G::kLatentWidth / abi::MX_GROUP;

  // Null when nobody asked.
  SPECDEC_DEVICE static uint64_t block(const Context& context) {
    const uint64_t base = context.args().witness;
    return base == 0 ? 0 : base + uint64_t(context.layer_in_run) * kBytes;
  }
  SPECDEC_DEVICE static void store(uint64_t block, uint32_t offset, uint32_t index, uint32_t value) {
    arch::global<uint32_t>(block + offset)[index] = value;
  }
};

}  // namespace specdec
