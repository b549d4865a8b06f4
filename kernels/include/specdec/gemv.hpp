// The one GEMV body: 16 weight rows x K times up to 16 token columns, K split over the waves of a workgroup.
//
// A wave keeps its K slice of the tokens in registers as matrix operands and streams its slice of the weights through
// a ring of registers, so that weights of the next tiles are in flight while the stage waits for its input. Same
// tiles, slices and sums for every width: a row's bits do not depend on its neighbours (spec: DESIGN "Same bits").
#pragma once

#include "specdec/mailbox.hpp"

namespace specdec {

// Partial tiles of the waves, twice: a tile's sums are read while the next tile's are written.
SPECDEC_SHARED float tile_sums[2][abi::WAVES][abi::TILE * abi::TILE];

// Where a tile's rows are. `split` moves the lower eight rows of the tile that far down, in rows (0: not split).
struct WeightTile {
  uint64_t weights;
  uint32_t bytes;   // of the whole matrix
  uint32_t offset;  // of the tile's first row
  uint32_t split;
};

template <uint32_t kK>
struct Gemv {
  static constexpr uint32_t kStep = 32;
  static constexpr uint32_t kSteps = kK / (abi::WAVES * kStep);
  static_assert(kSteps * abi::WAVES * kStep == kK, "every wave owns the same number of steps");
  static constexpr uint32_t kChunks = kSteps > 14 ? 2 : 1;  // of a tile
  static constexpr uint32_t kChunk = kSteps / kChunks;      // steps that one ring slot holds
  static_assert(kChunk * kChunks == kSteps && kChunk <= 14, "a slot of at most 14 loads");
  static constexpr uint32_t kSlots = kChunks > 1 ? 1 : (kChunk > 7 ? 1 : kChunk > 3 ? 2 : 4);
  static constexpr uint32_t kBody = kChunks > 1 ? 1 : kSlots;  // tiles of one unrolled round

  Uint4 ring[kSlots][kChunk];
  Bf16x8 tokens[kSteps];

  // First K of a lane's operands in step s.
  SPECDEC_DEVICE static uint32_t column(const Context& context, uint32_t s) {
    return (context.wave * kSteps + s) * kStep + context.lane / 16 * 8;
  }

  SPECDEC_DEVICE void load_chunk(const Context& context, const WeightTile& tile, uint32_t slot, uint32_t chunk) {
    const Span span(tile.weights, tile.bytes);
    const uint32_t row = context.lane % 16;
    const uint32_t below = tile.split != 0 && row >= 8 ? tile.split - 8 : 0;
    const uint32_t offset = (row + below) * (kK * 2) + column(context, 0) * 2;
#pragma unroll
    for (uint32_t s = 0; s < kChunk; ++s)
      ring[slot][s] = span.load16<Scope::kStream>(offset + (chunk * kChunk + s) * (kStep * 2), tile.offset);
  }

  // Fills the ring with the first tiles of this workgroup.
  template <class Locate>
  SPECDEC_DEVICE void prefetch(const Context& context, const Share& share, Locate locate) {
#pragma unroll
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const uint32_t task = share.first + slot * share.stride;
      if (task < share.end)
        load_chunk(context, locate(task), slot, 0);
      else
        define(slot);
    }
  }

  // The ring of a wave that fills it later, or a slot that no tile fills.
  SPECDEC_DEVICE void define() {
#pragma unroll
    for (uint32_t slot = 0; slot < kSlots; ++slot) define(slot);
  }
  SPECDEC_DEVICE void define(uint32_t slot) {
#pragma unroll
    for (uint32_t s = 0; s < kChunk; ++s) arch::define(ring[slot][s]);
  }

  // bf16 token rows [rows][kK] behind `span`; rows past its end are zero.
  template <Scope kScope>
  SPECDEC_DEVICE void load_tokens(const Context& context, const Span& span) {
    const uint32_t offset = context.lane % 16 * (kK * 2) + column(context, 0) * 2;
#pragma unroll
    for (uint32_t s = 0; s < kSteps; ++s)
      tokens[s] = __builtin_bit_cast(Bf16x8, span.load16<kScope>(offset + s * (kStep * 2)));
  }

  // Walks this workgroup's tasks. `store(task, token, row, sums)` gets two neighbouring weight rows
  // of a token's column, on the first 128 threads.
  template <class Locate, class Store>
  SPECDEC_DEVICE void run(Context& context, const Share& share, Locate locate, Store store) {
    uint32_t parity = 0;
    for (uint32_t task = share.first; task < share.end; task += kBody * share.stride) {
#pragma unroll
      for (uint32_t tile = 0; tile < kBody; ++tile) {
        const uint32_t current = task + tile * share.stride;
        if (current >= share.end) break;
        const uint32_t next = current + kBody * share.stride;
        Float4 sum = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
          const uint32_t slot = kChunks > 1 ? 0 : tile;
#pragma unroll
          for (uint32_t s = 0; s < kChunk; ++s)
            sum = arch::mfma(__builtin_bit_cast(Bf16x8, ring[slot][s]), tokens[chunk * kChunk + s], sum);
          // The slot's next content: the other half of this tile, or the tile `kSlots` further on.
          if (chunk + 1 < kChunks)
            load_chunk(context, locate(current), slot, chunk + 1);
          else if (next < share.end)
            load_chunk(context, locate(next), slot, 0);
        }
        reduce_tile(context, parity, current, arch::finish(sum), store);
        parity ^= 1;
      }
    }
  }

 private:
  template <class Store>
  SPECDEC_DEVICE void reduce_tile(Context& context, uint32_t parity, uint32_t task, Float4 sum, Store store) {
    auto& sums = tile_sums[parity];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) sums[context.wave][i * 64 + context.lane] = sum[i];
    context.barrier();
    if (context.thread < abi::TILE * abi::TILE / 2) {
      const uint32_t token = context.thread / 8, row = context.thread % 8 * 2;
      const uint32_t index = row % 4 * 64 + row / 4 * 16 + token;
      Float2 total = {0, 0};
#pragma unroll
      for (uint32_t wave = 0; wave < abi::WAVES; ++wave) {
        total.x += sums[wave][index];
        total.y += sums[wave][index + 64];
      }
      if (token < context.rows) store(task, token, row, total);
    }
  }
};

// Wave 0 polls and must have nothing in flight; the other waves fill their rings first, and it fills its own after.
template <class Fill, class Define, class Wait>
SPECDEC_DEVICE void fill_and_wait(Context& context, Fill fill, Define define, Wait wait) {
  if (context.wave != 0) {
    fill();
  } else {
    define();
    wait();
  }
  context.barrier();
  if (context.wave == 0) fill();
}

}  // namespace specdec
