// Written by crates/specdec-core/tests/generated_headers.rs: change the Rust source, not this file.
#pragma once
#include "specdec/types.hpp"

#define SPECDEC_ABI_HASH 0xb80ee425ef7a5e69

namespace specdec {
namespace abi {

constexpr static const uint32_t MAX_ROWS = 16;

constexpr static const uint32_t MAX_REQUESTS = 8;

constexpr static const uint32_t MAX_RANKS = 8;

constexpr static const uint32_t MAX_TOP_K = 16;

constexpr static const uint32_t MAX_BLOCKS = 8;

constexpr static const uint32_t WAVES = 8;

constexpr static const uint32_t WAVE_SIZE = 64;

constexpr static const uint32_t BLOCK = (WAVES * WAVE_SIZE);

constexpr static const uint32_t TILE = 16;

constexpr static const uint32_t SLICE = 128;

constexpr static const uint32_t SEAM_VALUES = 64;

constexpr static const uint32_t WITNESS_SOURCES = 16;

constexpr static const uint32_t KDA_CHUNK = 16;

constexpr static const uint32_t HIDDEN_SCALE_BYTES = 16;

constexpr static const uint32_t SHARED_COLUMNS = (TILE / 2);

constexpr static const uint32_t OWN_TILES = 4;

constexpr static const uint32_t MX_GROUP = 32;

constexpr static const uint32_t TAG_LAYERS = 256;

constexpr static const uint32_t TAG_EPOCHS = (1 << 24);

constexpr static const uint32_t POISON_TAG = 4294967295;

constexpr static const uint32_t NONE = 4294967295;

constexpr static const uint32_t LDS_BYTES = (160 * 1024);

constexpr static const uint32_t NUM_STAGES = 15;

constexpr static const uint32_t PLACE_STRIDE = 16;

constexpr static const uint32_t HEALTH_HEADER_BYTES = 64;

constexpr static const uint32_t PEER_HEAD_BYTES = 256;

constexpr static const uint32_t LAST_OF_STEP = 1;

constexpr static const uint32_t HAS_DELTA = 2;

enum class LayerKind : uint32_t {
  Whole = 0,
  Ffn = 1,
};

enum class Stage : uint32_t {
  AttentionDots = 0,
  AttentionMix = 1,
  InProj = 2,
  Kda = 3,
  OProj = 4,
  MlpDots = 5,
  MlpMix = 6,
  MoeIn = 7,
  Route = 8,
  ExpertUp = 9,
  ExpertDown = 10,
  SharedDown = 11,
  LatentNorm = 12,
  Up = 13,
  Output = 14,
};

enum class FailureReason : uint32_t {
  Timeout = 1,
  Poison = 2,
  Abort = 3,
  Metadata = 4,
  StaleMetadata = 5,
  Busy = 6,
  Corrupt = 7,
};

struct FailureRecord {
  uint32_t reason;
  uint32_t stage;
  uint32_t layer;
  uint32_t offset;
  uint32_t wanted;
  uint32_t seen;
  uint32_t source;
  uint32_t clock;
};

struct HealthHeader {
  uint32_t failed;
  uint32_t epoch;
  uint32_t busy;
  uint32_t step;
  uint32_t reserved[12];
};

struct LaunchArgs {
  uint64_t layers;
  uint64_t groups;
  uint64_t stages;
  uint64_t scratch;
  uint64_t peers[MAX_RANKS];
  uint64_t health;
  uint64_t abort;
  uint64_t witness;
  uint64_t prefix;
  uint64_t blocks;
  uint64_t delta;
  uint64_t core;
  uint32_t blocks_row_stride;
  uint32_t block_stride;
  uint64_t timeout_ticks;
  uint32_t num_layers;
  uint32_t rows;
  uint32_t rows_per_request;
  uint32_t requests;
  uint32_t rank;
  uint32_t grid;
  uint32_t flags;
  uint32_t reserved;
};

struct SeamWeights {
  uint64_t norm;
  uint64_t logit;
  uint64_t output;
  float eps;
  float output_eps;
};

struct LayerDescriptor {
  SeamWeights attention_seam;
  SeamWeights mlp_seam;
  uint64_t in_proj;
  uint64_t f_b;
  uint64_t conv;
  uint64_t a_log;
  uint64_t dt_bias;
  uint64_t o_norm;
  uint64_t o_proj;
  uint64_t router;
  uint64_t router_bias;
  uint64_t latent_down;
  uint64_t shared_gate_up;
  uint64_t shared_down;
  uint64_t w13;
  uint64_t w13_scale;
  uint64_t w2;
  uint64_t w2_scale;
  uint64_t latent_norm;
  uint64_t up;
  uint64_t conv_state;
  uint64_t conv_slot_stride;
  uint32_t conv_channel_stride;
  uint32_t conv_token_stride;
  uint64_t recurrent_state;
  uint64_t recurrent_slot_stride;
  uint32_t num_slots;
  uint32_t state_group;
  uint32_t kind;
  uint32_t layer;
  uint32_t num_blocks;
  uint32_t block_write;
  float gate_lower_bound;
  float o_norm_eps;
  float latent_eps;
  uint32_t reserved;
};

struct StateGroup {
  uint64_t state_indices;
  uint64_t num_accepted;
  uint32_t row_stride;
  uint32_t reserved;
};

struct StageTasks {
  uint32_t tasks;
  uint32_t head_ctas;
  uint32_t head_tasks;
  uint32_t reserved;
};

}  // namespace abi
}  // namespace specdec

namespace specdec::abi {
static_assert(sizeof(SeamWeights) == 32);
static_assert(__builtin_offsetof(SeamWeights, norm) == 0);
static_assert(__builtin_offsetof(SeamWeights, logit) == 8);
static_assert(__builtin_offsetof(SeamWeights, output) == 16);
static_assert(__builtin_offsetof(SeamWeights, eps) == 24);
static_assert(__builtin_offsetof(SeamWeights, output_eps) == 28);
static_assert(sizeof(LayerDescriptor) == 288);
static_assert(__builtin_offsetof(LayerDescriptor, attention_seam) == 0);
static_assert(__builtin_offsetof(LayerDescriptor, mlp_seam) == 32);
static_assert(__builtin_offsetof(LayerDescriptor, in_proj) == 64);
static_assert(__builtin_offsetof(LayerDescriptor, f_b) == 72);
static_assert(__builtin_offsetof(LayerDescriptor, conv) == 80);
static_assert(__builtin_offsetof(LayerDescriptor, a_log) == 88);
static_assert(__builtin_offsetof(LayerDescriptor, dt_bias) == 96);
static_assert(__builtin_offsetof(LayerDescriptor, o_norm) == 104);
static_assert(__builtin_offsetof(LayerDescriptor, o_proj) == 112);
static_assert(__builtin_offsetof(LayerDescriptor, router) == 120);
static_assert(__builtin_offsetof(LayerDescriptor, router_bias) == 128);
static_assert(__builtin_offsetof(LayerDescriptor, latent_down) == 136);
static_assert(__builtin_offsetof(LayerDescriptor, shared_gate_up) == 144);
static_assert(__builtin_offsetof(LayerDescriptor, shared_down) == 152);
static_assert(__builtin_offsetof(LayerDescriptor, w13) == 160);
static_assert(__builtin_offsetof(LayerDescriptor, w13_scale) == 168);
static_assert(__builtin_offsetof(LayerDescriptor, w2) == 176);
static_assert(__builtin_offsetof(LayerDescriptor, w2_scale) == 184);
static_assert(__builtin_offsetof(LayerDescriptor, latent_norm) == 192);
static_assert(__builtin_offsetof(LayerDescriptor, up) == 200);
static_assert(__builtin_offsetof(LayerDescriptor, conv_state) == 208);
static_assert(__builtin_offsetof(LayerDescriptor, conv_slot_stride) == 216);
static_assert(__builtin_offsetof(LayerDescriptor, conv_channel_stride) == 224);
static_assert(__builtin_offsetof(LayerDescriptor, conv_token_stride) == 228);
static_assert(__builtin_offsetof(LayerDescriptor, recurrent_state) == 232);
static_assert(__builtin_offsetof(LayerDescriptor, recurrent_slot_stride) == 240);
static_assert(__builtin_offsetof(LayerDescriptor, num_slots) == 248);
static_assert(__builtin_offsetof(LayerDescriptor, state_group) == 252);
static_assert(__builtin_offsetof(LayerDescriptor, kind) == 256);
static_assert(__builtin_offsetof(LayerDescriptor, layer) == 260);
static_assert(__builtin_offsetof(LayerDescriptor, num_blocks) == 264);
static_assert(__builtin_offsetof(LayerDescriptor, block_write) == 268);
static_assert(__builtin_offsetof(LayerDescriptor, gate_lower_bound) == 272);
static_assert(__builtin_offsetof(LayerDescriptor, o_norm_eps) == 276);
static_assert(__builtin_offsetof(LayerDescriptor, latent_eps) == 280);
static_assert(sizeof(HealthHeader) == 64);
static_assert(__builtin_offsetof(HealthHeader, failed) == 0);
static_assert(__builtin_offsetof(HealthHeader, epoch) == 4);
static_assert(__builtin_offsetof(HealthHeader, busy) == 8);
static_assert(__builtin_offsetof(HealthHeader, step) == 12);
static_assert(sizeof(StateGroup) == 24);
static_assert(__builtin_offsetof(StateGroup, state_indices) == 0);
static_assert(__builtin_offsetof(StateGroup, num_accepted) == 8);
static_assert(__builtin_offsetof(StateGroup, row_stride) == 16);
static_assert(sizeof(LaunchArgs) == 200);
static_assert(__builtin_offsetof(LaunchArgs, layers) == 0);
static_assert(__builtin_offsetof(LaunchArgs, groups) == 8);
static_assert(__builtin_offsetof(LaunchArgs, stages) == 16);
static_assert(__builtin_offsetof(LaunchArgs, scratch) == 24);
static_assert(__builtin_offsetof(LaunchArgs, peers) == 32);
static_assert(__builtin_offsetof(LaunchArgs, health) == 96);
static_assert(__builtin_offsetof(LaunchArgs, abort) == 104);
static_assert(__builtin_offsetof(LaunchArgs, witness) == 112);
static_assert(__builtin_offsetof(LaunchArgs, prefix) == 120);
static_assert(__builtin_offsetof(LaunchArgs, blocks) == 128);
static_assert(__builtin_offsetof(LaunchArgs, delta) == 136);
static_assert(__builtin_offsetof(LaunchArgs, core) == 144);
static_assert(__builtin_offsetof(LaunchArgs, blocks_row_stride) == 152);
static_assert(__builtin_offsetof(LaunchArgs, block_stride) == 156);
static_assert(__builtin_offsetof(LaunchArgs, timeout_ticks) == 160);
static_assert(__builtin_offsetof(LaunchArgs, num_layers) == 168);
static_assert(__builtin_offsetof(LaunchArgs, rows) == 172);
static_assert(__builtin_offsetof(LaunchArgs, rows_per_request) == 176);
static_assert(__builtin_offsetof(LaunchArgs, requests) == 180);
static_assert(__builtin_offsetof(LaunchArgs, rank) == 184);
static_assert(__builtin_offsetof(LaunchArgs, grid) == 188);
static_assert(__builtin_offsetof(LaunchArgs, flags) == 192);
}  // namespace specdec::abi
