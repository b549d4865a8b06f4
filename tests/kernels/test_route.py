"""`route`: top-k in slot order, weights, ties and NaN; the latent's MXFP4 form, bit for bit."""

import pytest
import torch

from kimi_k3_specdec.reference import moe
from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.mx import E2M1_VALUES

from .dial import FFN_LAYER, columns, dialled, setting
from .world import Shape, World, assert_close, assert_same

TOP_K, EXPERTS = NANO.top_k, NANO.num_experts

# A key is a sigmoid of 1 ulp in exp2 and rcp each, and a sum: two keys nearer than this may change places (numerics
# §10, 4e-6 for keys up to 2). A weight is such a score over a sum of them.
KEY_GAP = 4e-6
WEIGHT = 1e-5


def check_picks(step, layer) -> None:
    """Ids in descending order of key to within `KEY_GAP`, distinct, none left out; weights; the same on all ranks."""
    world = step.world
    logits = step.tensors(layer, "logits")[0].to(torch.float64)
    bias = world.weights[0].layers[layer]["mlp.gate.e_score_correction_bias"].to(torch.float64)
    score = torch.sigmoid(logits)
    keys = score + bias
    first = step.witness(layer, 0)
    assert all(len(set(row)) == TOP_K for row in first.picks.tolist()), first.picks
    picked = keys.gather(1, first.picks)
    rest = keys.scatter(1, first.picks, -torch.inf).amax(-1, keepdim=True)
    following = torch.cat((picked[:, 1:], rest), 1)
    assert (following - picked <= KEY_GAP).all(), "a better expert came later or not at all"
    chosen = score.gather(1, first.picks)
    expected = chosen / chosen.sum(-1, keepdim=True)
    assert_close(first.pick_weights, expected, WEIGHT * expected, f"weights of layer {layer}")
    for rank in range(1, world.shape.ranks):
        other = step.witness(layer, rank)
        assert torch.equal(other.picks, first.picks)
        assert torch.equal(other.pick_weights.view(torch.int32), first.pick_weights.view(torch.int32))


def check_latent(step, layer) -> None:
    """Codes and nibbles of the device's own latent."""
    expected = moe.quantise_latent(step.tensors(layer, "latent")[0])
    for rank in range(step.world.shape.ranks):
        witness = step.witness(layer, rank)
        assert torch.equal(witness.codes, expected.codes)
        assert torch.equal(witness.packed, expected.packed)


def test_picks_and_codes(recorded):
    """Random steps of all layers and shapes."""
    for layer in recorded.world.layers:
        check_picks(recorded.step, layer)
        check_latent(recorded.step, layer)


def routed(logits, bias=None, shape=None, **others):
    """A step whose logits are `logits` f32 [rows, E], exactly; `others` are weights too."""
    shape = shape or Shape(2, logits.shape[0] // 2, 2)
    bias = torch.zeros(EXPERTS) if bias is None else bias
    step = dialled(shape, setting(gate=columns(logits), e_score_correction_bias=bias, **others)).run()
    assert torch.equal(step.tensors(FFN_LAYER, "logits")[0], logits.to(torch.bfloat16).float())
    return step


def test_equal_keys_go_to_the_lower_expert():
    """All equal, some equal, equal in threes, and a few above equal ones."""
    logits = torch.full((4, EXPERTS), -1.0)
    logits[1, 5::3] = 2.0
    logits[2] = torch.arange(EXPERTS) // 3 * 0.25
    logits[3, [31, 7, 19]] = 3.0
    step = routed(logits)
    picks = step.witness(FFN_LAYER).picks
    assert picks.tolist() == [[0, 1, 2, 3], [5, 8, 11, 14], [30, 31, 27, 28], [7, 19, 31, 0]]
    check_picks(step, FFN_LAYER)
    weights = step.witness(FFN_LAYER).pick_weights
    assert (weights[:2] == 0.25).all()


@pytest.mark.parametrize("ranks", [1, 2])
def test_saturated_scores(ranks):
    """Sigmoids of exactly 1 tie whatever their logits; of exactly 0 too, behind every other one."""
    logits = torch.full((4, EXPERTS), -(2.0**100))
    logits[0, [9, 3, 30, 12, 1]] = torch.tensor([2.0**100, 200.0, 64.0, 500.0, 128.0])
    logits[1, 20] = 0.0
    logits[2, [4, 6]] = torch.tensor([-80.0, -85.0])
    logits[3, 31] = 2.0**120
    step = routed(logits, shape=Shape(ranks, 2, 2))
    witness = step.witness(FFN_LAYER)
    assert witness.picks.tolist() == [[1, 3, 9, 12], [20, 0, 1, 2], [4, 6, 0, 1], [31, 0, 1, 2]]
    assert torch.equal(witness.pick_weights[[0, 1, 3]],
                       torch.tensor([[0.25] * 4, [1.0, 0, 0, 0], [1.0, 0, 0, 0]]))
    check_picks(step, FFN_LAYER)


def test_the_bias_selects_and_the_plain_score_weighs():
    """Biases from -1e6, whose keys are below every score, to 1e6; keys may be negative and may tie through biases."""
    logits = torch.zeros(4, EXPERTS)
    logits[1] = torch.linspace(-4, 4, EXPERTS)
    logits[2, 8:] = 5.0
    logits[3, ::2] = -3.0
    bias = torch.full((EXPERTS,), -2.0)
    bias[[2, 29]] = torch.tensor([1e6, -1e6])
    bias[10], bias[11] = 0.25, 0.25
    step = routed(logits, bias)
    check_picks(step, FFN_LAYER)
    picks = step.witness(FFN_LAYER).picks
    assert (picks[:, 0] == 2).all() and not (picks == 29).any()
    assert picks[0].tolist() == [2, 10, 11, 0]


@pytest.mark.parametrize("rows", [2, 8, 16])
def test_everybody_picks_the_same_experts(rows):
    """The smallest union."""
    logits = torch.full((rows, EXPERTS), -2.0)
    logits[:, [28, 3, 17, 16]] = torch.tensor([4.0, 3.0, 2.0, 1.0])
    step = routed(logits)
    assert (step.witness(FFN_LAYER).picks == torch.tensor([28, 3, 17, 16])).all()
    check_picks(step, FFN_LAYER)


@pytest.mark.parametrize("rows", [8, 16])
def test_nobody_picks_anothers_experts(rows):
    """8 rows x top-4 are all 32 experts; 16 rows share each with one other."""
    logits = torch.full((rows, EXPERTS), -2.0)
    for row in range(rows):
        logits[row, [row % 8 + 8 * k for k in range(TOP_K)]] = torch.tensor([4.0, 3.0, 2.0, 1.0])
    step = routed(logits)
    check_picks(step, FFN_LAYER)
    assert step.witness(FFN_LAYER).picks.unique().numel() == EXPERTS


@pytest.mark.parametrize("num_nan", [1, 29, 30, 32])
def test_nan_ranks_last_and_ids_stay_in_range(num_nan):
    """A NaN weight of the router makes its expert's key NaN in every row, since NaN * 0 is NaN."""
    bad = torch.randperm(EXPERTS, generator=torch.Generator().manual_seed(num_nan))[:num_nan]
    logits = torch.randn(4, EXPERTS, generator=torch.Generator().manual_seed(1))
    gate = columns(logits)
    gate[bad, 5] = torch.nan
    step = dialled(Shape(2, 2, 2), setting(gate=gate, e_score_correction_bias=torch.zeros(EXPERTS))).run()
    for rank in range(2):
        witness = step.witness(FFN_LAYER, rank)
        for row, picks in enumerate(witness.picks.tolist()):
            assert all(0 <= pick < EXPERTS for pick in picks) and len(set(picks)) == TOP_K
            good = [e for e in range(EXPERTS) if e not in bad]
            best = sorted(good, key=lambda e: (-float(logits[row, e].to(torch.bfloat16)), e))[:TOP_K]
            # Behind the last number the NaNs come, lower ids first, with a weight of 0.
            expected = best + sorted(bad.tolist())[: TOP_K - len(best)]
            assert picks == expected
            if good:
                assert (witness.pick_weights[row, len(best) :] == 0).all()


def test_a_nan_row_picks_in_range_and_changes_nobodys_bits():
    """All its keys are NaN; ids that follow from them must be harmless."""
    clean, poisoned = (World(Shape(2, 8, 2), (3,)) for _ in range(2))
    for prefix in poisoned.prefix:
        prefix[7] = torch.nan
    steps = [world.run() for world in (clean, poisoned)]
    picks = steps[1].witness(3).picks[7].tolist()
    assert len(set(picks)) == TOP_K and all(0 <= pick < EXPERTS for pick in picks)
    assert_same(steps[1].everything(), steps[0].everything(), [row for row in range(16) if row != 7])


def latents(values):
    """A step with the latent `values` f32 [rows, 256], bf16 values that a product with 16 keeps exact."""
    step = dialled(Shape(2, values.shape[0] // 2, 2), setting(routed_expert_down_proj=columns(values))).run()
    assert torch.equal(step.tensors(FFN_LAYER, "latent")[0].float(), values)
    check_latent(step, FFN_LAYER)
    return step


def test_latent_ties_and_zero_groups():
    """Every tie of E2M1 at several scales, both signs; groups of zeros get code 0 and only their own."""
    magnitudes = E2M1_VALUES[:8]
    ties = (magnitudes[1:] + magnitudes[:-1]) / 2
    group = torch.cat((magnitudes, ties, -magnitudes, -ties, torch.tensor([6.0, -0.0])))
    values = torch.zeros(4, 256)
    for g, exponent in enumerate((0, -20, 7, 40, -60)):
        for row in range(4):
            values[row, 32 * g : 32 * g + 32] = group.roll(row) * 2.0 ** (exponent + row)
    step = latents(values)
    codes = step.witness(FFN_LAYER).codes
    assert (codes[:, 5:] == 0).all() and (step.witness(FFN_LAYER).packed[:, 80:] & 0x77 == 0).all()
    # An amax of exactly 6 * 2^k has the exponent k; ties go to the even code.
    assert codes[0, :5].tolist() == [127, 107, 134, 167, 67]


def test_latent_amax_around_powers():
    """amax one bf16 step below, at and above 6 * 2^k and 4 * 2^k, where the exponent must and must not change."""
    values = torch.zeros(4, 256)
    for row, middle in enumerate((6.0, 4.0, 3.0, 8.0)):
        step = 2.0**-7 * 2.0 ** torch.tensor(middle).log2().floor()
        for g in range(8):
            values[row, 32 * g : 32 * g + 32] = torch.linspace(-1, 1, 32).to(torch.bfloat16)
            values[row, 32 * g + g] = (middle + (g % 3 - 1) * step) * 2.0 ** (g - 4)
    latents(values)


@pytest.mark.parametrize("magnitude", [2.0**-125, 2.0**-133, 2.0**119], ids=["least", "subnormal", "largest"])
def test_latent_at_the_ends_of_bf16(magnitude):
    """Codes near 0 and near 254. Matrix instructions keep subnormal bf16 inputs."""
    values = magnitude * torch.arange(-128, 128).float().clamp(-128, 127).reshape(1, 256).expand(2, 256)
    values = values.to(torch.bfloat16).float()
    step = dialled(Shape(2, 1, 2), setting(routed_expert_down_proj=columns(values))).run()
    check_latent(step, FFN_LAYER)
