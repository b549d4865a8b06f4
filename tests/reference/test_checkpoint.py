"""Checkpoints: round trip, loaded form, atomic writing and one error that lists everything wrong."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from kimi_k3_specdec.reference import checkpoint
from kimi_k3_specdec.reference.checkpoint import CheckpointError
from kimi_k3_specdec.reference.geometry import NANO, NANO_DEEP
from kimi_k3_specdec.reference.layouts import SCALE_FILLER, unshuffle_scales
from kimi_k3_specdec.reference.random_weights import checkpoint_specs, checkpoint_tensors
from kimi_k3_specdec.reference.weights import layer_specs, top_specs


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A nano checkpoint on disk; tests that damage it copy it first."""
    path = tmp_path_factory.mktemp("checkpoints") / "nano"
    checkpoint.make(path, NANO, 0)
    return path


@pytest.fixture
def damaged(made, tmp_path):
    """A function that rewrites the tensors of a copy and returns its path."""

    def rewrite(change):
        tensors = load_file(made / checkpoint.TENSOR_FILE)
        change(tensors)
        save_file(tensors, tmp_path / checkpoint.TENSOR_FILE)
        (tmp_path / checkpoint.CONFIG_FILE).write_text((made / checkpoint.CONFIG_FILE).read_text())
        return tmp_path

    return rewrite


def test_the_same_seed_makes_the_same_bytes(made, nano_tensors):
    """And another seed others."""
    found = load_file(made / checkpoint.TENSOR_FILE)
    assert set(found) == set(nano_tensors) == set(checkpoint_specs(NANO))
    assert all(found[n].equal(t) and found[n].dtype == t.dtype for n, t in nano_tensors.items())
    other = checkpoint_tensors(NANO, 1)
    same = [n for n, t in other.items() if t.equal(nano_tensors[n])]
    assert not [n for n in same if not n.endswith(("A_log", "conv1d.weight"))]


def test_config_is_what_vllm_reads(made):
    """Its layer lists are 1-based."""
    config = json.loads((made / checkpoint.CONFIG_FILE).read_text())
    assert config["linear_attn_config"]["full_attn_layers"] == [4, 6]
    assert config["linear_attn_config"]["kda_layers"] == [1, 2, 3, 5]
    assert (config["num_experts"], config["attn_res_block_size"], config["seed"]) == (32, 4, 0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_loaded_form_has_the_tables_shapes(made, ranks):
    """Every tensor of numerics §7."""
    for w in checkpoint.load(made, NANO, ranks):
        assert {n: (t.dtype, tuple(t.shape)) for n, t in w.top.items()} == top_specs(NANO, ranks)
        for layer, tensors in w.layers.items():
            found = {n: (t.dtype, tuple(t.shape)) for n, t in tensors.items()}
            assert found == layer_specs(NANO, ranks, layer)


def test_fused_rows_and_padding(made, nano_tensors):
    """in_proj's rows by content."""
    w = checkpoint.load(made, NANO, 2)[1].layers[1]
    fused = w["self_attn.in_proj_qkvgfab.weight"]
    a = "model.layers.1.self_attn"
    for n, name in enumerate("qkvg"):
        assert fused[256 * n : 256 * (n + 1)].equal(nano_tensors[f"{a}.{name}_proj.weight"][256:])
    assert fused[1024:1152].equal(nano_tensors[f"{a}.f_a_proj.weight"])
    assert fused[1152:1154].equal(nano_tensors[f"{a}.b_proj.weight"][2:])
    assert not fused[1154:].any()
    assert w["self_attn.o_proj.weight"].equal(nano_tensors[f"{a}.o_proj.weight"][:, 256:])
    assert w["self_attn.conv1d.weight"][256:512].equal(nano_tensors[f"{a}.k_conv1d.weight"][256:])


def test_padding_columns_of_w2_scales_are_filler(made):
    """Using one would be seen."""
    scales = unshuffle_scales(checkpoint.load(made, NANO, 2)[0].layers[1]["mlp.experts.w2_weight_scale"])
    assert (scales[:, 4:] == SCALE_FILLER).all() and (scales[:, :4] != SCALE_FILLER).all()


def test_some_layers_can_be_loaded(made):
    """Others cost nothing."""
    assert set(checkpoint.load(made, NANO, 2, range(1, 3))[0].layers) == {1, 2}


def test_missing_wrong_shape_and_wrong_dtype_are_listed_together(damaged):
    """One error, all problems."""
    def change(tensors):
        del tensors["model.norm.weight"]
        tensors["lm_head.weight"] = tensors["lm_head.weight"][:100].clone()
        name = "model.layers.2.block_sparse_moe.gate.weight"
        tensors[name] = tensors[name].float()

    with pytest.raises(CheckpointError) as error:
        checkpoint.load(damaged(change), NANO, 2)
    assert error.value.problems == [
        "tensor `model.norm.weight` is missing",
        "tensor `lm_head.weight` is BF16 [100, 256], BF16 [512, 256] is needed",
        "tensor `model.layers.2.block_sparse_moe.gate.weight` is F32 [32, 256], BF16 [32, 256] is needed",
    ]
    assert all(p in str(error.value) for p in error.value.problems) and "`nano`" in error.value.hint


def test_a_truncated_file_is_one_error(damaged):
    """It names the file and its size."""
    path = damaged(lambda tensors: None)
    file = path / checkpoint.TENSOR_FILE
    file.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(CheckpointError, match=r"`model.safetensors` \(100000 bytes\) is truncated or damaged"):
        checkpoint.load(path, NANO, 2)


def test_a_foreign_geometry_and_an_absent_directory(made, tmp_path):
    """Found against needed."""
    with pytest.raises(CheckpointError, match="`num_hidden_layers` is 6, `nano-deep` needs 14"):
        checkpoint.load(made, NANO_DEEP, 2)
    with pytest.raises(CheckpointError) as error:
        checkpoint.load(tmp_path / "nothing", NANO, 2)
    assert len(error.value.problems) == 2


def test_a_broken_config_is_named(damaged):
    """Instead of a traceback of json."""
    path = damaged(lambda tensors: None)
    (path / checkpoint.CONFIG_FILE).write_text("{")
    with pytest.raises(CheckpointError, match="`config.json` cannot be read"):
        checkpoint.load(path, NANO, 2)


def test_ranks_that_do_not_divide_are_refused_before_reading(tmp_path):
    """Even without a checkpoint."""
    with pytest.raises(ValueError, match="over 3 ranks"):
        checkpoint.load(tmp_path, NANO, 3)


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
    """When the disk is full."""
    def fail(tensors, path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.make(tmp_path / "nano", NANO, 0)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_not_overwritten(made):
    """It stays usable."""
    with pytest.raises(CheckpointError, match="exists already"):
        checkpoint.make(made, NANO, 0)
    with safe_open(made / checkpoint.TENSOR_FILE, framework="pt") as file:
        assert torch.is_tensor(file.get_tensor("model.norm.weight"))
