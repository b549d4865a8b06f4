"""The public names: values, messages, exceptions and log lines as documented (spec/runtime.md §1)."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_k3_specdec import runtime
from kimi_k3_specdec.runtime import DecodeConfig, PlatformFacts

from .configs import CHANGES, MLA, Backend, CUDAGraphMode, change, served, text_config

MI355X = PlatformFacts("rocm", "gfx950", 256)


@pytest.fixture(autouse=True)
def aiter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a served deployment."""
    monkeypatch.setenv("VLLM_ROCM_USE_AITER", "1")


def unsupported(config: SimpleNamespace) -> list[str]:
    """On eight MI355X."""
    return runtime.unsupported(config, platform=MI355X)


def at_dcp1() -> SimpleNamespace:
    """Served at DCP1 where VLLM_ROCM_USE_AITER_FP4BMM=1."""
    config = served()
    config.parallel_config.decode_context_parallel_size = 1
    config.cache_config.cache_dtype = "fp8"
    return config


def test_constants() -> None:
    """As documented."""
    assert (runtime.AUTO, runtime.SPECIALIZED, runtime.TP, runtime.DCP) == ("auto", "latency_specialized", 8, 8)
    assert (runtime.MAX_ROWS, runtime.MAX_SEQS, runtime.DCP_SIZES) == (16, (1, 2, 4, 8), (1, 8))
    assert (runtime.FP8_KV, runtime.M1C_QLENS) == (("fp8", "fp8_e4m3"), (4, 8))
    assert (runtime.WHOLE, runtime.FFN, runtime.K3_SHAPES) == ("whole", "ffn", (7168, 896, 96, 128, 4))


@pytest.mark.parametrize(("path", "value", "reason"), CHANGES, ids=range(len(CHANGES)))
def test_a_single_change_gives_its_reason(path: str, value: object, reason: str) -> None:
    """And no other."""
    config = served()
    change(path, value)(config)
    assert unsupported(config) == [reason]


@given(st.sets(st.integers(0, len(CHANGES) - 1)))
def test_a_set_of_changes_gives_every_reason_in_order(picked: set[int]) -> None:
    """Once each, whatever else is wrong."""
    config, wanted, fields = served(), [], set()
    for path, value, reason in (CHANGES[i] for i in sorted(picked)):
        if path not in fields:
            change(path, value)(config)
            wanted += [reason] * (reason not in wanted)
        fields.add(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ROCM_USE_AITER", "1")
        assert unsupported(config) == wanted


def test_without_speculation_nothing_is_said_of_drafts() -> None:
    """Rows 17 to 19 and 26 need drafts."""
    config = served()
    config.speculative_config, config.scheduler_config.max_num_seqs = None, 999
    assert unsupported(config) == ["decoding without speculative decoding"]


@pytest.mark.parametrize(("aiter", "moe"), [("0", "1"), ("1", "0"), ("", "")])
def test_aiter_must_be_on(monkeypatch: pytest.MonkeyPatch, aiter: str, moe: str) -> None:
    """Both switches."""
    monkeypatch.setenv("VLLM_ROCM_USE_AITER", aiter)
    monkeypatch.setenv("VLLM_ROCM_USE_AITER_MOE", moe)
    assert unsupported(served()) == ["AITER off (set VLLM_ROCM_USE_AITER=1, VLLM_ROCM_USE_AITER_MOE=1)"]


def test_dcp1_needs_m1_and_a_step_that_m1c_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order, one reason at a time."""
    config = at_dcp1()
    fp4 = "DCP1 without M1 (AITER's MXFP4 bmms (VLLM_ROCM_USE_AITER_FP4BMM=1))"
    assert unsupported(config) == [fp4] == runtime.step_reasons(config)
    monkeypatch.setenv("VLLM_ROCM_USE_AITER_FP4BMM", "1")
    assert unsupported(config) == runtime.step_reasons(config) == runtime.m1_reasons(config) == []
    config.attention_config.backend = Backend.ROCM_AITER_MLA
    assert unsupported(config) == []
    config.attention_config.backend = Backend.TRITON_MLA
    assert unsupported(config) == ["DCP1 without M1 (the ROCM_AITER_MLA attention backend)"]
    config.attention_config.backend = None
    config.speculative_config.num_speculative_tokens, config.scheduler_config.max_num_seqs = 2, 1
    m1c = ("DCP1 at 2 speculative tokens, max_num_seqs 1 (DCP1 runs M1c only: 3 or 7 speculative tokens, max_num_seqs "
           "1 or 2; use DCP8)")
    assert unsupported(config) == [m1c]
    assert runtime.step_reasons(config, check_m1c=False) == []
    assert runtime.unsupported(config, platform=PlatformFacts("cuda")) == ["this platform (ROCm only)"]


def test_dcp8_without_m1_is_served_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """One info line, and the settings."""
    config = served()
    config.parallel_config.cp_kv_cache_interleave_size = 64
    with caplog.at_level(logging.INFO):
        settings = runtime.specialized_decode_config(config, platform=MI355X)
    assert settings == DecodeConfig(q=8, m1=False, interleave=64, max_num_seqs=2)
    assert settings.widths == (8, 16)
    needs = "an fp8 (E4M3) KV cache; AITER's MXFP4 bmms (VLLM_ROCM_USE_AITER_FP4BMM=1)"
    wanted = f"Kimi-K3 specialized decode: the MLA layers run vLLM's attention ops, then K2 (M1 needs {needs})"
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("INFO", wanted)]


def test_with_m1s_prerequisites_it_says_that_no_m1_is_shipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`m1` is the deployment's fact, not the kernels'."""
    monkeypatch.setenv("VLLM_ROCM_USE_AITER_FP4BMM", "1")
    with caplog.at_level(logging.INFO):
        settings = runtime.specialized_decode_config(at_dcp1(), platform=MI355X)
    assert settings is not None and settings.m1
    assert [r.getMessage() for r in caplog.records] == [
        "Kimi-K3 specialized decode: the MLA layers run vLLM's attention ops, then K2 (no M1 kernel is shipped)"]


def test_graphs_in_pieces_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Only where no decode step is captured whole."""
    config = served()
    for mode in (None, *CUDAGraphMode):
        caplog.clear()
        config.compilation_config.cudagraph_mode = mode
        is_only = mode is CUDAGraphMode.PIECEWISE
        assert runtime.piecewise_graphs_only(config) is is_only
        runtime.specialized_decode_config(config, platform=MI355X)
        warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert warned == ["Kimi-K3 specialized decode: PIECEWISE-only CUDA graphs capture every decode step as stock; "
                          "use FULL decode graphs"] * is_only


def test_the_switch() -> None:
    """Off by default; another value is an error before anything is read."""
    config = served()
    config.additional_config = {}
    assert runtime.decode_backend(config) == "auto"
    assert runtime.specialized_decode_config(SimpleNamespace(additional_config={})) is None
    assert runtime.specialized_decode_config(SimpleNamespace(additional_config=None)) is None
    for value in ("fast", None, 3):
        bad = SimpleNamespace(additional_config={"decode_backend": value})
        with pytest.raises(ValueError) as raised:
            runtime.specialized_decode_config(bad)
        assert str(raised.value) == f"decode_backend must be 'auto' or 'latency_specialized', got {value!r}"


def test_a_refusal_is_one_error_with_every_reason() -> None:
    """`ValueError`, in the documented sentence."""
    config = served()
    config.lora_config, config.use_v2_model_runner = object(), False
    with pytest.raises(ValueError) as raised:
        runtime.specialized_decode_config(config, platform=PlatformFacts("rocm", "gfx950", 32))
    assert str(raised.value) == (
        "Kimi-K3 specialized decode (decode_backend=latency_specialized) does not support: LoRA; the V1 model runner "
        "(set VLLM_USE_V2_MODEL_RUNNER=1); 32 CUs (a partitioned GPU; the kernels need 256) (decode_backend=auto runs "
        "vLLM's decode)")


def test_the_emulator_serves_the_loaded_model_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever attention vLLM runs on this machine."""
    config = served()
    config.additional_config["decode_device"] = "emulator"
    config.attention_config.backend = "CPU_MLA"
    config.parallel_config.tensor_parallel_size = config.parallel_config.decode_context_parallel_size = 1
    text = config.model_config.hf_text_config
    text.hidden_size, text.num_experts, text.linear_attn_config["num_heads"] = 256, 32, 4
    assert runtime.specialized_decode_config(config) == DecodeConfig(8, False, 1, 2)
    assert "emulator on the CPU, for tests only" in caplog.text
    text.hidden_size = 512
    assert runtime.unsupported(config)[-1].startswith("model shapes (512, 32, 4, 128, 4) (hidden")


def test_layer_kinds_of_kimi_k3() -> None:
    """68 whole layers and 24 halves."""
    kinds = runtime.layer_kinds(text_config())
    halves = sorted(layer for layer, kind in kinds.items() if kind == runtime.FFN)
    assert halves == [layer - 1 for layer in MLA]
    assert sorted(kinds) == list(range(1, 93)) and len(kinds) - len(halves) == 68
    assert runtime.layer_kinds(SimpleNamespace(attn_res_block_size=None, num_experts=896, num_hidden_layers=9)) == {}
    assert runtime.text_shapes(text_config()) == runtime.K3_SHAPES
    assert runtime.text_shapes(SimpleNamespace(hidden_size=1)) == (1, None, None, None, None)
