"""Barriers left out."""

from .mutant import Edit, Mutant

GEMV = "include/specdec/gemv.hpp"

MUTANTS = (
    Mutant(
        "tile_sums_without_barrier",
        "partial sums of a tile are added before all waves have them",
        (
            Edit(
                GEMV,
                "    context.barrier();\n"
                "    if (context.thread < abi::TILE",
                "    if (context.thread < abi::TILE",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "tile_sums_single_buffer",
        "a tile's sums overwrite the last one's while they are read",
        (
            Edit(
                GEMV,
                "        parity ^= 1;\n",
                "",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "fill_and_wait_without_barrier",
        "waves start before wave 0 has seen their input",
        (
            Edit(
                GEMV,
                "  context.barrier();\n"
                "  if (context.wave == 0) fill();",
                "  if (context.wave == 0) fill();",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "kda_entry_without_barrier",
        "waves start kda before wave 0 has seen proj",
        (
            Edit(
                "stages/kda.hpp",
                "context.producers(context.tasks(Stage::InProj).tasks));\n"
                "  context.barrier();",
                "context.producers(context.tasks(Stage::InProj).tasks));",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "kda_inputs_without_barrier",
        "norms of q and k are taken before all are there",
        (
            Edit(
                "stages/kda.hpp",
                "  decay_gates<G>(context, layer, request, head);\n"
                "  context.barrier();",
                "  decay_gates<G>(context, layer, request, head);",
            ),
        ),
    ),
    Mutant(
        "kda_norms_without_barrier",
        "the recurrence reads q and k before they are scaled",
        (
            Edit(
                "stages/kda.hpp",
                '  static_assert(G::kHeadDim == 128, "the scale above and two columns a lane");\n'
                "  context.barrier();",
                '  static_assert(G::kHeadDim == 128, "the scale above and two columns a lane");',
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "kda_output_without_barrier",
        "core takes outputs that other waves still compute",
        (
            Edit(
                "stages/kda.hpp",
                "    recurrence<G>(context, layer, slots, head, chunk);\n"
                "    context.barrier();",
                "    recurrence<G>(context, layer, slots, head, chunk);",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "kda_task_end_without_barrier",
        "the next task's inputs overwrite what this one still reads",
        (
            Edit(
                "stages/kda.hpp",
                "    // The next task overwrites what this one's last lines read.\n"
                "    context.barrier();\n",
                "",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "route_clear_without_barrier",
        "picks are noted before the last layer's are cleared",
        (
            Edit(
                "stages/route.hpp",
                "    reinterpret_cast<uint32_t*>(shared.scales)[i] = 0;\n"
                "  context.barrier();",
                "    reinterpret_cast<uint32_t*>(shared.scales)[i] = 0;",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "route_picks_without_barrier",
        "the union is made before all picks are there",
        (
            Edit(
                "stages/route.hpp",
                "pick_experts<G>(context, layer, row);\n"
                "  context.barrier();",
                "pick_experts<G>(context, layer, row);",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "route_end_without_barrier",
        "experts start before union and codes are there",
        (
            Edit(
                "stages/route.hpp",
                "  quantise_latent<G>(context);\n"
                "  context.barrier();",
                "  quantise_latent<G>(context);",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "expert_up_without_barrier",
        "SiTU starts before all partial sums are there",
        (
            Edit(
                "stages/expert_up.hpp",
                "    context.barrier();\n"
                "    store_expert_hidden",
                "    store_expert_hidden",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "expert_up_task_end_without_barrier",
        "the next expert's sums overwrite those that SiTU reads",
        (
            Edit(
                "stages/expert_up.hpp",
                "    store_expert_hidden<G>(context, index, group);\n"
                "    context.barrier();",
                "    store_expert_hidden<G>(context, index, group);",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "expert_down_without_barrier",
        "contributions are folded before all are there",
        (
            Edit(
                "stages/down.hpp",
                "  ring.fill(context, layer, next_tile);\n"
                "  context.barrier();",
                "  ring.fill(context, layer, next_tile);",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "expert_down_tile_end_without_barrier",
        "the next tile's contributions overwrite those being folded",
        (
            Edit(
                "stages/down.hpp",
                "    push_partial<G::kRanks>(context, G::kLatentOutData, row, G::kLatentWidth, column, sum);\n"
                "  }\n"
                "  context.barrier();",
                "    push_partial<G::kRanks>(context, G::kLatentOutData, row, G::kLatentWidth, column, sum);\n"
                "  }",
            ),
        ),
        is_race=True,
    ),
    Mutant(
        "start_without_barrier",
        "waves read the failure word before it is there",
        (
            Edit(
                "stages/begin.hpp",
                "  context.barrier();\n  return context;",
                "  context.failed = arch::uniform(workgroup_failed);\n  return context;",
            ),
        ),
    ),
    Mutant(
        "barrier_left_out_by_a_wave",
        "one wave does not come to a barrier",
        (
            Edit(
                GEMV,
                "    context.barrier();\n"
                "    if (context.thread < abi::TILE",
                "    if (context.wave != 7) context.barrier();\n"
                "    if (context.thread < abi::TILE",
            ),
        ),
    ),
)
