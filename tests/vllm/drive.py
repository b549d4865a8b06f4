"""Runs one engine: `python drive.py CASE.json OUT.json`, by the Python of an environment that has vLLM."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def options(case: dict[str, Any]) -> dict[str, Any]:
    """`LLM`'s arguments for a case."""
    made: dict[str, Any] = {
        "model": case["model"], "skip_tokenizer_init": True, "max_model_len": 128, "max_num_seqs": 2,
        "enforce_eager": True, "dtype": "bfloat16", "kv_cache_memory_bytes": 64 << 20,
        "attention_backend": "CPU_MLA", "enable_prefix_caching": False, "seed": 0, "disable_log_stats": False,
        "tensor_parallel_size": case.get("ranks", 1), "additional_config": case.get("additional_config", {}),
    }
    if case.get("drafts", 3):
        made["speculative_config"] = {"method": "ngram", "num_speculative_tokens": case.get("drafts", 3),
                                      "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    return made | case.get("arguments", {})


def generate(llm: Any, case: dict[str, Any]) -> list[list[int]]:
    """Greedy tokens of every prompt."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=case.get("tokens", 8), ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": prompt} for prompt in case["prompts"]]
    return [list(output.outputs[0].token_ids) for output in llm.generate(prompts, sampling, use_tqdm=False)]


def stream(llm: Any, case: dict[str, Any], out: dict[str, Any]) -> None:
    """The same, token by token: `seen` has what left the engine before it ended, by prompt."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    sampling = SamplingParams(temperature=0, max_tokens=case.get("tokens", 8), ignore_eos=True, detokenize=False)
    seen = out["seen"] = [[] for _ in case["prompts"]]
    for index, prompt in enumerate(case["prompts"]):
        engine.add_request(str(index), {"prompt_token_ids": prompt}, sampling)
    while engine.has_unfinished_requests():
        for output in engine.step():
            seen[int(output.request_id.split("-")[0])] = list(output.outputs[0].token_ids)


def metrics() -> dict[str, float]:
    """What `/metrics` would answer in this process, ours and the drafter's."""
    from vllm.v1.metrics.prometheus import get_prometheus_registry

    return {f"{sample.name}{sorted(sample.labels.items())}": sample.value
            for family in get_prometheus_registry().collect() for sample in family.samples
            if sample.name.startswith(("kimi_k3_specdec_", "vllm:spec_decode"))}


def main() -> None:
    """Writes the outcome: tokens and metrics, or the error that reached the user."""
    case = json.loads(Path(sys.argv[1]).read_text())
    out: dict[str, Any] = {}
    started = time.monotonic()
    from vllm import LLM

    try:
        llm = LLM(**options(case))
        out["config"] = repr(llm.llm_engine.vllm_config)
        out["start_seconds"] = time.monotonic() - started
        started = time.monotonic()
        if case.get("stream"):
            stream(llm, case, out)
        else:
            out["tokens"] = generate(llm, case)
        out["seconds"] = time.monotonic() - started
        # The ranks write their counters every half second.
        time.sleep(case.get("settle_seconds", 0))
        out["metrics"] = metrics()
    except Exception as error:
        out["failed_after_seconds"] = time.monotonic() - started
        out["error"] = {"type": type(error).__name__, "is_value_error": isinstance(error, ValueError),
                        "text": str(error)}
    finally:
        Path(sys.argv[2]).write_text(json.dumps(out))


if __name__ == "__main__":
    main()
