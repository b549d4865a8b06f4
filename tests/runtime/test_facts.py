"""Facts: every field is read, by name where it is an enum; a surprise is an error that names its field."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_k3_specdec.runtime import PlatformFacts, UnexpectedFieldError, facts

from .configs import CUDAGraphMode, change, served

MI355X = PlatformFacts("rocm", "gfx950", 256)


def at(config: SimpleNamespace, path: str) -> tuple[object, str]:
    """The object that holds a dotted attribute, and the attribute's name."""
    *parents, name = path.split(".")
    for parent in parents:
        config = getattr(config, parent)
    return config, name


def with_kv() -> SimpleNamespace:
    """A deployment in which every section exists."""
    config = served()
    config.kv_transfer_config = SimpleNamespace(kv_connector="MoRIIOConnector", kv_role="kv_consumer",
                                                kv_connector_module_path=None)
    return config


@pytest.mark.parametrize("field", facts.FIELDS, ids=lambda field: field.path)
def test_an_unexpected_type_names_its_field(field: facts.Field) -> None:
    """A list is no fact of any kind, unless anything counts that is not None."""
    config = with_kv()
    change(field.path, ["?"])(config)
    if field.kind.wanted == facts.optional(facts.PRESENT).wanted:
        assert facts.read(config, field) is True
        return
    with pytest.raises(UnexpectedFieldError, match=f"vllm_config.{field.path} is .*list.*expected {field.kind.wanted}"):
        facts.deployment(config, platform=MI355X)


@pytest.mark.parametrize("field", facts.FIELDS, ids=lambda field: field.path)
def test_a_missing_field_is_off_where_the_table_says_so(field: facts.Field) -> None:
    """And an error that names it otherwise."""
    config = with_kv()
    holder, name = at(config, field.path)
    delattr(holder, name)
    if field.path in facts.ABSENT:
        assert facts.read(config, field) == facts.ABSENT[field.path]
        facts.deployment(config, platform=MI355X)
    else:
        with pytest.raises(UnexpectedFieldError, match=f"vllm_config.{field.path} is missing"):
            facts.deployment(config, platform=MI355X)


def test_every_absent_field_is_a_field() -> None:
    """The table of absent fields names none that nobody reads."""
    assert set(facts.ABSENT) <= {field.path for field in facts.FIELDS}


@pytest.mark.parametrize("value", [True, 8.0, "8", None])
def test_an_integer_is_an_integer(value: object) -> None:
    """A bool is an int to Python, and none to us."""
    config = served()
    config.parallel_config.tensor_parallel_size = value
    with pytest.raises(UnexpectedFieldError, match="expected an integer"):
        facts.deployment(config, platform=MI355X)


def test_enums_count_by_their_names() -> None:
    """Values are vLLM's business."""
    config = served()
    for mode in CUDAGraphMode:
        config.compilation_config.cudagraph_mode = mode
        assert facts.deployment(config, platform=MI355X)["compilation_config"]["cudagraph_mode"] == mode.name


def test_text_models_of_other_kinds_have_holes() -> None:
    """A model without KDA or experts is described, not refused here."""
    assert facts.text_config(SimpleNamespace(hidden_size=4096)) == {"hidden_size": 4096}
    assert facts.text_config(None) == {}
    with pytest.raises(UnexpectedFieldError, match="hf_text_config.num_experts is '896'"):
        facts.text_config(SimpleNamespace(num_experts="896"))
    with pytest.raises(UnexpectedFieldError, match="linear_attn_config is \\[\\]"):
        facts.text_config(SimpleNamespace(linear_attn_config=[]))


@given(st.sampled_from(["1", "true", "TRUE", "True", "0", "", "yes", "on", " 1", "2", "false"]))
def test_switches_read_as_vllm_reads_them(text: str) -> None:
    """`1` and `true` in any case are on, all else is off."""
    with pytest.MonkeyPatch.context() as patch:
        for name in facts.AITER_SWITCHES:
            patch.setenv(name, text)
        found = facts.environment()
    assert {found[name] for name in facts.AITER_SWITCHES} == {text.lower() in ("1", "true")}


def test_defaults_are_vllms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a variable, and from `vllm.envs` where that is imported."""
    for name in facts.AITER_SWITCHES:
        monkeypatch.delenv(name, raising=False)
    assert {name: facts.environment()[name] for name in facts.AITER_SWITCHES} == facts.AITER_SWITCHES
    envs = ModuleType("vllm.envs")
    for name, default in (facts.AITER_SWITCHES | facts.OTHER_SWITCHES).items():
        setattr(envs, name, not default)
    monkeypatch.setitem(sys.modules, "vllm.envs", envs)
    found = facts.environment()
    assert all(found[name] is not default for name, default in facts.AITER_SWITCHES.items())
    assert found[facts.SITU_V2] == "auto"


def test_vllms_own_switches_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off unless set."""
    assert not any(facts.environment()[name] for name in facts.OTHER_SWITCHES)
    for name in facts.OTHER_SWITCHES:
        monkeypatch.setenv(name, "1")
    assert all(facts.environment()[name] for name in facts.OTHER_SWITCHES)


def test_someone_elses_additional_config_holds_nothing_of_ours() -> None:
    """vLLM allows a hashable object there."""
    config = served()
    config.additional_config = frozenset({"decode_backend"})
    assert facts.additional_config(config) == {}


def test_the_emulator_needs_no_gpu() -> None:
    """Nobody asks torch for one."""
    config = served()
    config.additional_config["decode_device"] = "emulator"
    assert facts.deployment(config)["platform"] is None
