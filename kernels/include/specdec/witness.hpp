// Values that live only in registers or LDS, stored when the launch asks for them, so that stages can be checked.
//
// One block a layer of the run: softmax weights of both seams, picks, and the latent's MXFP4 codes.
#pragma once

#include "specdec/mailbox.hpp"

namespace specdec {

template <class G>
struct Witness {
  // Null when nobody asked.
  SPECDEC_DEVICE static uint64_t block(const Context& context) {
    const uint64_t base = context.args().witness;
    return base == 0 ? 0 : base + uint64_t(context.layer_in_run) * G::kWitnessBytes;
  }
  SPECDEC_DEVICE static void store(uint64_t block, uint32_t offset, uint32_t index, uint32_t value) {
    arch::global<uint32_t>(block + offset)[index] = value;
  }
};

}  // namespace specdec
