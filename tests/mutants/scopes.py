"""Plain accesses where a device- or system-scope one is needed."""

from .mutant import Edit, Mutant

MAILBOX = "include/specdec/mailbox.hpp"
ARCH = "include/specdec/arch/gfx950.hpp"

MUTANTS = (
    Mutant(
        "plain_dots_store",
        "dots may stay in an L2",
        (
            Edit(
                "stages/seam_dots.hpp",
                "dots.store4<Scope::kDevice>",
                "dots.store4<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_dots_load",
        "old dots may be read",
        (
            Edit(
                "stages/seam_mix.hpp",
                "dots.load4<Scope::kDevice>",
                "dots.load4<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_x_store",
        "x may stay in an L2",
        (
            Edit(
                "stages/seam_mix.hpp",
                "x.store4<Scope::kDevice>",
                "x.store4<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_x_load",
        "old x may be read",
        (
            Edit(
                "stages/hidden_gemv.hpp",
                "gemv.template load_tokens<Scope::kDevice>",
                "gemv.template load_tokens<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_proj_store",
        "proj may stay in an L2",
        (
            Edit(
                "stages/hidden_gemv.hpp",
                "proj.store4<Scope::kDevice>",
                "proj.store4<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_proj_load",
        "old proj may be read by the convolution",
        (
            Edit(
                "stages/kda.hpp",
                "const float input = bf16_to_float(proj.load2<Scope::kDevice>",
                "const float input = bf16_to_float(proj.load2<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_gate_load",
        "old proj may be read by the decay gates",
        (
            Edit(
                "stages/kda.hpp",
                "proj.load16<Scope::kDevice>(token_at",
                "proj.load16<Scope::kWave>(token_at",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_conv_input_load",
        "old proj may be read for the convolution state",
        (
            Edit(
                "stages/o_proj.hpp",
                "proj.load2<Scope::kDevice>",
                "proj.load2<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_core_store",
        "core may stay in an L2",
        (
            Edit(
                "stages/kda.hpp",
                "core.store4<Scope::kDevice>((row * G::kProj",
                "core.store4<Scope::kWave>((row * G::kProj",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_core_squares_store",
        "core's squares may stay in an L2",
        (
            Edit(
                "stages/kda.hpp",
                "if (v == 0) core.store4<Scope::kDevice>",
                "if (v == 0) core.store4<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_core_load",
        "old core may be read",
        (
            Edit(
                "stages/o_proj.hpp",
                "core.load16<Scope::kDevice>(value_at",
                "core.load16<Scope::kWave>(value_at",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_shared_hidden_store",
        "the shared hidden may stay in an L2",
        (
            Edit(
                "stages/hidden_gemv.hpp",
                "shared.store4<Scope::kDevice>",
                "shared.store4<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_shared_hidden_load",
        "the old shared hidden may be read",
        (
            Edit(
                "stages/down.hpp",
                "gemv.template load_tokens<Scope::kDevice>",
                "gemv.template load_tokens<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_expert_scale_store",
        "the experts' scales may stay in an L2",
        (
            Edit(
                "stages/expert_up.hpp",
                "  if (column == 0)\n"
                "    out.store1<Scope::kDevice>",
                "  if (column == 0)\n"
                "    out.store1<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_expert_hidden_store",
        "the experts' codes may stay in an L2",
        (
            Edit(
                "stages/expert_up.hpp",
                "  if (column % 2 == 0)\n"
                "    out.store1<Scope::kDevice>",
                "  if (column % 2 == 0)\n"
                "    out.store1<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_expert_hidden_load",
        "old codes of the experts may be read",
        (
            Edit(
                "stages/down.hpp",
                "hidden_span.load16<Scope::kDevice>",
                "hidden_span.load16<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_z_store",
        "z may stay in an L2",
        (
            Edit(
                "stages/latent_norm.hpp",
                "  out.store4<Scope::kDevice>((row",
                "  out.store4<Scope::kWave>((row",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_z_load",
        "old z may be read",
        (
            Edit(
                "stages/up.hpp",
                "const Uint4 value = z.load16<Scope::kDevice>",
                "const Uint4 value = z.load16<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_flag_load",
        "polls may see an old flag for ever",
        (
            Edit(
                MAILBOX,
                "flags.load16<Scope::kDevice>",
                "flags.load16<Scope::kWave>",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "plain_flag_store",
        "flags may stay in an L2",
        (
            Edit(
                ARCH,
                "  __hip_atomic_store(global<uint32_t>(address), tag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);",
                "  __hip_atomic_store(global<uint32_t>(address), tag, __ATOMIC_RELAXED, "
                "__HIP_MEMORY_SCOPE_WORKGROUP);",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "device_scope_pair_store",
        "pairs need not leave the device",
        (
            Edit(
                ARCH,
                "uint64_t(tag) << 32 | payload, __ATOMIC_RELAXED,\n"
                "                     __HIP_MEMORY_SCOPE_SYSTEM);",
                "uint64_t(tag) << 32 | payload, __ATOMIC_RELAXED,\n"
                "                     __HIP_MEMORY_SCOPE_AGENT);",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "device_scope_pair_load",
        "pairs of other devices may be read from an old copy",
        (
            Edit(
                ARCH,
                "  return __hip_atomic_load(global<uint64_t>(address), __ATOMIC_RELAXED, "
                "__HIP_MEMORY_SCOPE_SYSTEM);",
                "  return __hip_atomic_load(global<uint64_t>(address), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);",
            ),
        ),
        is_race=True,
    ),
)
