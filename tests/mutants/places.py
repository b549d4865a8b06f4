"""Wrong places: regions over each other, tiles off by one, orders, bounds."""

from .mutant import Edit, Mutant

MAILBOX = "include/specdec/mailbox.hpp"

MUTANTS = (
    Mutant(
        "conv_state_too_early",
        "the convolution state is stored while sibling tasks read it",
        (
            Edit(
                "stages/o_proj.hpp",
                "  Gemv<G::kProj> gemv;\n"
                "  fill_and_wait(",
                "  if (whole)\n"
                "    for (uint32_t task = share.first; task < context.args().requests * G::kHeads; task += "
                "share.stride)\n"
                "      store_conv_state<G>(context, layer, task / G::kHeads, task % G::kHeads);\n"
                "  Gemv<G::kProj> gemv;\n"
                "  fill_and_wait(",
            ),
            Edit(
                "stages/o_proj.hpp",
                "    for (uint32_t task = share.first; task < context.args().requests * G::kHeads; task += "
                "share.stride)\n"
                "      store_conv_state<G>(context, layer, task / G::kHeads, task % G::kHeads);\n"
                "}",
                "    (void)0;\n"
                "}",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "z_over_expert_hidden",
        "z overwrites the experts' hidden while other workgroups read it",
        (
            Edit(
                "stages/latent_norm.hpp",
                "const Span out = context.scratch(G::kLatentZData,",
                "const Span out = context.scratch(G::kExpertHiddenData,",
            ),
            Edit(
                "stages/up.hpp",
                "const Span z = context.scratch(G::kLatentZData,",
                "const Span z = context.scratch(G::kExpertHiddenData,",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "core_over_proj",
        "core overwrites proj while other heads read it",
        (
            Edit(
                "stages/kda.hpp",
                "const Span core = context.scratch(G::kCoreData,",
                "const Span core = context.scratch(G::kProjData,",
            ),
            Edit(
                "stages/o_proj.hpp",
                "const Span core = context.scratch(G::kCoreData,",
                "const Span core = context.scratch(G::kProjData,",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "latent_out_over_attention_out",
        "two partial sums of one layer share their pairs' words",
        (
            Edit(
                "stages/down.hpp",
                "push_partial<G::kRanks>(context, G::kLatentOutData,",
                "push_partial<G::kRanks>(context, G::kAttentionOutData,",
            ),
            Edit(
                "stages/latent_norm.hpp",
                "context.tag(), true, G::kLatentOutData,",
                "context.tag(), true, G::kAttentionOutData,",
            ),
        ),
    ),
    Mutant(
        "scrub_rows_in_use",
        "pairs of the step's own rows are cleared",
        (
            Edit(
                "stages/scrub.hpp",
                "  if (row < context.rows) return;\n",
                "",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "scrub_other_half",
        "pairs of rows in use are cleared in the half of the next step",
        (
            Edit(
                "stages/scrub.hpp",
                "  if (row < context.rows) return;\n",
                "",
            ),
            Edit(
                "stages/scrub.hpp",
                "arch::store_pair(context.peer(context.rank, region + (first + i) * 8), 0, 0);",
                "arch::store_pair(context.peer(context.rank, region + (first + i) * 8) - context.peer_half + "
                "(context.peer_half ^ G::kPeerHalfBytes), 0, 0);",
            ),
        ),
    ),
    Mutant(
        "proj_tile_off_by_one",
        "in_proj stores each tile one column on",
        (
            Edit(
                "stages/hidden_gemv.hpp",
                "proj.store4<Scope::kDevice>((token * G::kInProjRows + task * abi::TILE + row) * 2,",
                "proj.store4<Scope::kDevice>((token * G::kInProjRows + task * abi::TILE + row + 2) * 2,",
            ),
        ),
    ),
    Mutant(
        "weight_tile_off_by_one",
        "o_proj multiplies the next tile's weights",
        (
            Edit(
                "stages/o_proj.hpp",
                "layer.o_proj, G::kHidden * G::kProj * 2, task * kTileBytes, 0}",
                "layer.o_proj, G::kHidden * G::kProj * 2, (task + 1) * kTileBytes, 0}",
            ),
        ),
    ),
    Mutant(
        "slots_in_reverse",
        "contributions are folded from the last slot to the first",
        (
            Edit(
                "stages/down.hpp",
                "    for (uint32_t k = 0; k < G::kTopK; ++k)\n",
                "    for (uint32_t k = G::kTopK; k-- > 0;)\n",
            ),
        ),
    ),
    Mutant(
        "a_rank_left_out",
        "the all-reduce leaves out the last rank",
        (
            Edit(
                "stages/seam_dots.hpp",
                "for (uint32_t source = 0; source < G::kRanks; ++source) sum",
                "for (uint32_t source = 0; source + 1 < G::kRanks; ++source) sum",
            ),
        ),
    ),
    Mutant(
        "wrong_ring_slot",
        "expert_down multiplies another expert's weights",
        (
            Edit(
                "stages/down.hpp",
                "expert_contribution<G>(context, ring, slot, tile, index);",
                "expert_contribution<G>(context, ring, (slot + 1) % Ring::kDepth, tile, index);",
            ),
        ),
    ),
    Mutant(
        "conv_window_off_by_one",
        "the convolution state keeps one token too old",
        (
            Edit(
                "stages/o_proj.hpp",
                "state[(slots.accepted_before + 1) * stride], ",
                "state[slots.accepted_before * stride], ",
            ),
        ),
    ),
    Mutant(
        "conv_weights_past_the_end",
        "the convolution's weights are read past their end",
        (
            Edit(
                "stages/kda.hpp",
                "arch::global<Float4>(layer.conv)[channel];",
                "arch::global<Float4>(layer.conv)[channel + 3 * G::kProj];",
            ),
        ),
    ),
    Mutant(
        "pair_off_its_word",
        "a pair's store is not aligned to its word",
        (
            Edit(
                MAILBOX,
                "arch::store_pair(context.peer(to, offset), payload, tag);",
                "arch::store_pair(context.peer(to, offset + 4), payload, tag);",
            ),
        ),
    ),
)
