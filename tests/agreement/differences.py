"""Where our reasons are meant to differ from vLLM 0.33.0's: the whole list, each with why and a case that shows it.

The seed is the newest version of vLLM's package, which refuses more than 0.33.0 does; the rest is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Facts = dict[str, Any]

MAX_ROWS = 16
MAX_SEQS = (1, 2, 4, 8)
DCP_SIZES = (1, 8)
E4M3 = ("fp8", "fp8_e4m3")
M1C_DRAFTS = (3, 7)
M1C_SEQS = (1, 2)
STATES = "KDA cache dtypes other than a BF16 conv state and an FP32 recurrent state (mamba cache dtype)"


@dataclass(frozen=True)
class Difference:
    """One intended difference.

    ``adds`` gives our message for a deployment, or None; ``drops`` gives a message of vLLM's that ours does without.
    ``shown_by`` names a case on which this difference and no other tells the two lists apart.
    """

    name: str
    why: str
    shown_by: str
    adds: Callable[[Facts], str | None] = lambda _facts: None
    drops: Callable[[Facts], str | None] = lambda _facts: None

    def apply(self, facts: Facts, reasons: list[str]) -> list[str]:
        """``reasons`` with this difference; an added one stands last."""
        kept = [reason for reason in reasons if reason != self.drops(facts)]
        added = self.adds(facts)
        return kept if added is None or added in kept else [*kept, added]


def experts_backend(facts: Facts) -> str | None:
    """The kernels read the layout that AITER's backend loads."""
    found = facts["kernel_config"]["moe_backend"]
    return None if found in ("auto", "aiter") else f"MoE backend {found} (auto or aiter only)"


def always(message: str) -> Callable[[Facts], str]:
    """``message`` for every deployment."""
    return lambda _facts: message


def drafts(facts: Facts) -> int | None:
    """Drafts a request, None without speculation."""
    return facts["speculative_config"] and facts["speculative_config"]["num_speculative_tokens"]


def dcp_size(facts: Facts) -> str | None:
    """Row 6."""
    served = facts["parallel_config"]["decode_context_parallel_size"] in DCP_SIZES
    return None if served else "decode context parallelism other than 1 or 8 (over the TP group)"


def aiter(facts: Facts) -> str | None:
    """Row 10."""
    switches = facts["environment"]
    on = switches["VLLM_ROCM_USE_AITER"] and switches["VLLM_ROCM_USE_AITER_MOE"]
    return None if on else "AITER off (set VLLM_ROCM_USE_AITER=1, VLLM_ROCM_USE_AITER_MOE=1)"


def rows(facts: Facts) -> str | None:
    """Row 17."""
    count = drafts(facts)
    return f"more than {MAX_ROWS - 1} speculative tokens" if count is not None and count + 1 > MAX_ROWS else None


def recurrent_state(facts: Facts) -> str | None:
    """Row 20, the half that vLLM's check does not look at."""
    return None if facts["cache_config"]["mamba_ssm_cache_dtype"] in ("auto", "float32") else STATES


def m1_lacks(facts: Facts) -> list[str]:
    """What M1 needs and the deployment lacks."""
    switches, backend = facts["environment"], facts["attention_config"]["backend"]
    on = switches["VLLM_ROCM_USE_AITER"]
    needs = (
        (
            on and switches["VLLM_ROCM_USE_AITER_MLA"] and backend in (None, "ROCM_AITER_MLA"),
            "the ROCM_AITER_MLA attention backend",
        ),
        (facts["cache_config"]["cache_dtype"] in E4M3, "an fp8 (E4M3) KV cache"),
        (on and switches["VLLM_ROCM_USE_AITER_FP4BMM"], "AITER's MXFP4 bmms (VLLM_ROCM_USE_AITER_FP4BMM=1)"),
    )
    return [what for met, what in needs if not met]


def step(facts: Facts) -> tuple[str, str] | None:
    """Row 26: which of its three rules refuses the deployment, and the message."""
    count, requests = drafts(facts), facts["scheduler_config"]["max_num_seqs"]
    if count is None or count + 1 > MAX_ROWS:
        return None
    if requests not in MAX_SEQS or requests * (count + 1) > MAX_ROWS:
        fits = "max_num_seqs 1, 2, 4 or 8 with max_num_seqs x (k + 1) <= 16"
        return "requests", f"max_num_seqs {requests} at {count} speculative tokens ({fits})"
    if facts["parallel_config"]["decode_context_parallel_size"] != 1 or in_emulator(facts):
        return None
    if lacks := m1_lacks(facts):
        return "m1", f"DCP1 without M1 ({'; '.join(lacks)})"
    if served_gpu(facts) and (count not in M1C_DRAFTS or requests not in M1C_SEQS):
        runs = "DCP1 runs M1c only: 3 or 7 speculative tokens, max_num_seqs 1 or 2; use DCP8"
        return "m1c", f"DCP1 at {count} speculative tokens, max_num_seqs {requests} ({runs})"
    return None


def in_emulator(facts: Facts) -> bool:
    """Whether the kernels run in our emulator, which needs no GPU."""
    return facts["additional_config"].get("decode_device") == "emulator"


def served_gpu(facts: Facts) -> bool:
    """Whether row 27 finds nothing: M1c's rule needs what only that GPU has."""
    return facts["platform"] == {"kind": "rocm", "gfx": "gfx950", "compute_units": 256}


def step_rule(rule: str) -> Callable[[Facts], str | None]:
    """The message of one rule of row 26."""

    def message(facts: Facts) -> str | None:
        found = step(facts)
        return found[1] if found and found[0] == rule else None

    return message


def requested(section: str, name: str, message: str) -> Callable[[Facts], str | None]:
    """``message`` where a field is set."""
    return lambda facts: message if facts[section][name] else None


def experts_mode(facts: Facts) -> str | None:
    """The experts' layout."""
    given = facts["environment"]["VLLM_ROCM_USE_AITER_MOE_SITUV2"].lower()
    # The older spellings.
    found = {"0": "a16w4", "1": "a4w4"}.get(given, given)
    return f"VLLM_ROCM_USE_AITER_MOE_SITUV2={found} (a4w4 only)" if found in ("a8w4", "a16w4") else None


DIFFERENCES = (
    Difference(
        "dcp-sizes",
        "The seed serves context parallelism over 1 or 8 ranks and says so; 0.33.0 says 1 or the TP size.",
        "tp-4-dcp-4",
        dcp_size,
        drops=always("decode context parallelism other than 1 or TP"),
    ),
    Difference("aiter-off", "The seed reads AITER's weight layouts, so it refuses a vLLM that does not make them.",
               "aiter-0", aiter),
    Difference(
        "sixteen-rows",
        "The seed's launches take 16 rows, 0.33.0's take 8.",
        "seqs-1-drafts-8",
        rows,
        drops=always("more than 7 speculative tokens"),
    ),
    Difference("recurrent-state-dtype", "0.33.0 forgets `mamba_ssm_cache_dtype` and fails at the first KV bind.",
               "states-auto-bfloat16", recurrent_state),
    Difference("requests-and-drafts", "The seed plans launches for 1, 2, 4 or 8 requests of at most 16 rows in all.",
               "seqs-3-drafts-1", step_rule("requests")),
    Difference("dcp-1-needs-m1", "Without context parallelism the seed runs MLA itself, in M1.",
               "m1-no-fp4bmm", step_rule("m1")),
    Difference("dcp-1-runs-m1c", "The seed's M1c is made for 4 or 8 rows of one or two requests.",
               "m1-seqs-1-drafts-5", step_rule("m1c")),
    Difference("fault-tolerance", "Ours: survivors would go on after a rank failed, past the fail-stop.",
               "fault-tolerance", requested("parallel_config", "enable_fault_tolerance", "fault tolerance")),
    Difference("batch-sharded-sampling", "Ours: it packs the sampler's output anew and drops the alarm word in it.",
               "sampling-sharded",
               requested("parallel_config", "enable_batch_sharded_sampling", "batch-sharded sampling")),
    Difference("watermarking", "Ours: vLLM refuses a custom sampler with it, after the weights have loaded.",
               "watermark", lambda facts: None if facts["watermark_config"] is None else "watermarking"),
    Difference("nodes", "Ours: ranks map each other's memory, which ends at the host.", "nodes-2",
               lambda facts: "more than one node" if facts["parallel_config"]["nnodes"] > 1 else None),
    Difference("pooling", "Ours: the fail-stop sits in the sampler, which pooling does without.", "pooling",
               lambda facts: "pooling models" if facts["model_config"]["runner_type"] == "pooling" else None),
    Difference("experts-backend", "Ours: vLLM's own check finds it when the weights have loaded.",
               "experts-backend-triton", experts_backend),
    Difference("batch-invariant", "Ours: specialised and stock steps round differently.", "batch-invariant",
               requested("environment", "VLLM_BATCH_INVARIANT", "batch-invariant mode (VLLM_BATCH_INVARIANT)")),
    Difference("mla-disable", "Ours: without MLA layers the metadata is another.", "mla-disable",
               requested("environment", "VLLM_MLA_DISABLE", "MLA off (VLLM_MLA_DISABLE)")),
    Difference("experts-mode", "Ours: another mode lays the experts' weights out otherwise, unseen by any kernel.",
               "experts-mode-a8w4", experts_mode),
    Difference(
        "emulator",
        "Ours: `decode_device=emulator`, for tests, needs no GPU.",
        "switch-emulator",
        drops=lambda facts: "this platform (ROCm only)" if in_emulator(facts) else None,
    ),
)
"""The list. A difference that is not in it fails `test_agreement.py`, and so does one that no case shows."""


def expected(facts: Facts, upstream: list[str]) -> list[str]:
    """vLLM's reasons after every intended difference."""
    for difference in DIFFERENCES:
        upstream = difference.apply(facts, upstream)
    return upstream
