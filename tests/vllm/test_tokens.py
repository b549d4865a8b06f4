"""The real vLLM decodes a nano Kimi-K3 with our kernels in the emulator: the tokens are those of its own decode."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rig import DRAFTS, OURS, SETTLE_SECONDS, TOKENS, Rig

from kimi_k3_specdec.decoding.oracle import continue_prompts
from kimi_k3_specdec.reference import checkpoint
from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.model import Model

pytestmark = pytest.mark.vllm

@pytest.mark.parametrize(("ranks", "processes"), [(1, False), (2, False), (2, True)],
                         ids=["one rank", "two ranks", "two ranks, engine core apart"])
def test_specialized_decode_gives_the_same_tokens(rig: Rig, ranks: int, processes: bool) -> None:
    """Drafts are accepted in part, every verify step is ours, and no token differs."""
    ours = rig.run(f"ours{ranks}{processes}", ranks=ranks, processes=processes, additional_config=OURS,
                   settle_seconds=SETTLE_SECONDS, variables=rig.known(ranks))
    assert ours.tokens == rig.stock(ranks)
    assert 0.3 < ours.acceptance() < DRAFTS - 0.3
    # A step is vLLM's only while a prompt is in it; then the other request may verify beside it.
    prompts = ours.metric("stock_steps_total")
    assert 1 <= prompts <= len(rig.case["prompts"])
    assert ours.drafted_requests() - (prompts - 1) <= ours.specialized_requests() <= ours.drafted_requests()
    epochs = {value for key, value in ours.answer["metrics"].items() if key.startswith("kimi_k3_specdec_epoch[")}
    assert len(epochs) == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_vllm_and_the_reference_agree(rig: Rig, ranks: int) -> None:
    """Two models of the same checkpoint, without a line in common: neither the stand-ins nor the prompts are wrong."""
    weights = checkpoint.load(Path(rig.case["model"]), NANO, ranks)
    truths = continue_prompts(Model(weights), [torch.tensor(prompt) for prompt in rig.case["prompts"]], TOKENS)
    assert [truth.tokens.tolist() for truth in truths] == rig.stock(ranks)


def test_stock_verify_steps_agree_too(rig: Rig) -> None:
    """The same drafts without the switch: vLLM's own verification, and not a metric of ours."""
    auto = rig.run("auto", variables=rig.known(1))
    assert auto.tokens == rig.stock(1)
    assert not [key for key in auto.answer["metrics"] if key.startswith("kimi_k3_specdec_")]


@pytest.mark.parametrize("processes", [False, True], ids=["in process", "engine core apart"])
def test_refusals_reach_the_user(rig: Rig, processes: bool) -> None:
    """One ValueError with every reason, before any process is started."""
    refused = rig.run(f"refused{processes}", processes=processes, ranks=2, additional_config=OURS,
                      arguments={"max_num_seqs": 3, "mamba_ssm_cache_dtype": "bfloat16"},
                      variables={"VLLM_ROCM_USE_AITER": "0"})
    error = refused.answer["error"]
    assert error["is_value_error"], error
    for reason in ("AITER off", "max_num_seqs 3 at 3 speculative tokens", "KDA cache dtypes"):
        assert reason in error["text"]
    assert "Worker_TP" not in refused.log
