"""Mistakes in waits, flags and tags."""

from .mutant import Edit, Mutant

MAILBOX = "include/specdec/mailbox.hpp"

MUTANTS = (
    Mutant(
        "publish_wave_without_vmcnt",
        "a wave raises its flag while its rows are in flight",
        (
            Edit(
                MAILBOX,
                "  arch::wait_memory();\n"
                "  if (context.lane == 0)",
                "  if (context.lane == 0)",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "publish_without_vmcnt",
        "a workgroup raises its flag while its waves' rows are in flight",
        (
            Edit(
                MAILBOX,
                "  arch::wait_memory();\n"
                "  context.barrier();",
                "  context.barrier();",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "publish_without_barrier",
        "the flag tells of wave 0's rows only",
        (
            Edit(
                MAILBOX,
                "  arch::wait_memory();\n"
                "  context.barrier();\n"
                "  if (context.thread == 0) arch::store_flag",
                "  arch::wait_memory();\n"
                "  if (context.thread == 0) arch::store_flag",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "flag_before_rows",
        "the flag of x is raised before x is stored",
        (
            Edit(
                "stages/seam_mix.hpp",
                "  x.store4<Scope::kDevice>((row * G::kHidden + column) * 2, narrow(mixed * scale * rms * "
                "output_weight));\n"
                "  publish_wave(context, mlp ? G::kMlpXFlags : G::kAttentionXFlags, task);\n",
                "  publish_wave(context, mlp ? G::kMlpXFlags : G::kAttentionXFlags, task);\n"
                "  x.store4<Scope::kDevice>((row * G::kHidden + column) * 2, narrow(mixed * scale * rms * "
                "output_weight));\n",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "one_flag_too_few",
        "the last producer is not waited for",
        (
            Edit(
                MAILBOX,
                "SPECDEC_DEVICE void wait_flags(Context& context, Stage stage, uint32_t flags_offset, uint32_t "
                "count) {\n",
                "SPECDEC_DEVICE void wait_flags(Context& context, Stage stage, uint32_t flags_offset, uint32_t "
                "count) {\n"
                "  --count;\n",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "one_slice_too_few",
        "seam_mix does not wait for its row's last slice",
        (
            Edit(
                "stages/seam_mix.hpp",
                "row * G::kSlices, G::kSlices);\n"
                "  const float total",
                "row * G::kSlices, G::kSlices - 1);\n"
                "  const float total",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "any_flag",
        "a flag of any earlier layer or step is accepted",
        (
            Edit(
                MAILBOX,
                "const bool missing = (index + i < count) & (seen[i] != tag);",
                "const bool missing = (index + i < count) & (seen[i] == 0);",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "any_few_flags",
        "a seam's flag of any earlier step is accepted",
        (
            Edit(
                MAILBOX,
                "const bool missing = (context.lane < count) & (seen != tag);",
                "const bool missing = (context.lane < count) & (seen == 0);",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "any_pair",
        "a pair of any earlier layer or step is accepted",
        (
            Edit(
                MAILBOX,
                "const bool missing = seen != tag;",
                "const bool missing = seen == 0;",
            ),
        ),
    ),
    Mutant(
        "look_once",
        "every wait looks once and goes on",
        (
            Edit(
                MAILBOX,
                "    if (pending == 0) break;\n",
                "    if (pending != ~0ull) break;\n",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "proj_not_waited_for",
        "kda reads proj before it is there",
        (
            Edit(
                "stages/kda.hpp",
                "  if (context.wave == 0)\n"
                "    wait_flags",
                "  if (context.wave == 8)\n"
                "    wait_flags",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "core_not_waited_for",
        "o_proj reads core before it is there",
        (
            Edit(
                "stages/o_proj.hpp",
                "        if (whole)\n"
                "          wait_flags",
                "        if (whole && context.rows > 16)\n"
                "          wait_flags",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "z_not_waited_for",
        "up reads z before it is there",
        (
            Edit(
                "stages/up.hpp",
                "[&] { wait_flags(context, Stage::Up, G::kLatentZFlags, context.rows * G::kLatentSlices); }",
                "[&] {}",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "x_not_waited_for",
        "in_proj and moe_in read x before it is there",
        (
            Edit(
                "stages/hidden_gemv.hpp",
                "[&] { wait_flags(context, stage, mlp ? G::kMlpXFlags : G::kAttentionXFlags, context.rows * "
                "G::kSlices); }",
                "[&] {}",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "expert_hidden_not_waited_for",
        "expert_down reads the experts' hidden before it is there",
        (
            Edit(
                "stages/down.hpp",
                "        if (expert_first < expert_tasks)\n"
                "          wait_flags",
                "        if (expert_first > expert_tasks)\n"
                "          wait_flags",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "dots_not_waited_for",
        "seam_mix sums dots that are not there",
        (
            Edit(
                "stages/seam_mix.hpp",
                "  wait_few_flags(context, stage, mlp",
                "  if (context.rows > 16) wait_few_flags(context, stage, mlp",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "next_layers_tag",
        "seam_dots waits for the output of its own layer",
        (
            Edit(
                "stages/seam_dots.hpp",
                "mlp ? context.tag() : context.tag() - 1;",
                "context.tag();",
            ),
        ),
    ),
    Mutant(
        "stale_tag_published",
        "flags carry the tag of the layer before",
        (
            Edit(
                MAILBOX,
                "SPECDEC_DEVICE uint32_t publish_tag() const { return failed ? abi::POISON_TAG : tag(); }",
                "SPECDEC_DEVICE uint32_t publish_tag() const { return failed ? abi::POISON_TAG : tag() - 1; }",
            ),
        ),
    ),
    Mutant(
        "other_parity_half",
        "readers look into the half of the step before",
        (
            Edit(
                MAILBOX,
                "const uint64_t base = context.peer(context.rank, 0);",
                "const uint64_t base = context.args().peers[context.rank] + 64;",
            ),
        ),
    ),
    Mutant(
        "epoch_too_early",
        "the epoch advances while other waves may not have read it",
        (
            Edit(
                "stages/begin.hpp",
                "  context.peer_half = epoch % 2 * G::kPeerHalfBytes;\n",
                "  context.peer_half = epoch % 2 * G::kPeerHalfBytes;\n"
                "  if (context.cta == 0 && context.thread == 0 && (args.flags & abi::LAST_OF_STEP))\n"
                "    arch::store_system(context.header(kEpoch), epoch + 1);\n",
            ),
            Edit(
                "stages/output.hpp",
                "if (task == 0 && context.lane == 0 && context.failed == 0 && (args.flags & abi::LAST_OF_STEP))",
                "if (task == ~0u && context.failed == 0 && (args.flags & abi::LAST_OF_STEP))",
            ),
        ),
        is_race=True,
    ),
)
