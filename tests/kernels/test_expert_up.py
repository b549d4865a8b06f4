"""`expert_up`: gate and up of every picked expert in MXFP4, SiTU, and the hidden's own MXFP4 form."""

import pytest
import torch

from kimi_k3_specdec.decoding.exchanges import hidden_scale_order
from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.mx import Mx, dequantise, e2m1_nibbles, e8m0_scale, moe_code, unpack_nibbles
from kimi_k3_specdec.reference.situ import situ

from .bounds import FEW
from .dial import FFN_LAYER, both, columns, dialled, experts, picking, setting
from .world import Shape, assert_same

TOP_K, EXPERTS, LATENT = NANO.top_k, NANO.num_experts, NANO.latent

# Sums of 256 products of E2M1 values have at most 20 bits here: fp32 holds them, whatever the order. Where scales of
# one row differ by more, each of the 16 additions of a wave's blocks and halves rounds once.
MX_DOT = 2.0**-21


def stored(step, layer, rank) -> Mx:
    """What the stage published: packed [S, top_k, I / 2], codes [S, top_k, I / 32]."""
    packed, codes = step.tensors(layer, "expert_hidden", rank)
    codes = codes[:, hidden_scale_order(step.world.shard)]
    return Mx(packed.unflatten(0, (-1, TOP_K)), codes.unflatten(0, (-1, TOP_K)))


def exact_hidden(step, layer, rank):
    """SiTU of gate and up in float64 from the device's own latent codes and picks, and its fp32 slack."""
    world, witness = step.world, step.witness(layer, rank)
    latent = dequantise(Mx(witness.packed, witness.codes)).to(torch.float64)
    matrix = world.weights[rank].w13(layer)
    rows = [torch.stack([latent[row] @ matrix(e).to(torch.float64).T for e in picks])
            for row, picks in enumerate(witness.picks.tolist())]
    noise = [torch.stack([latent[row].abs() @ matrix(e).to(torch.float64).abs().T for e in picks])
             for row, picks in enumerate(witness.picks.tolist())]
    (gate, up), (gate_slack, up_slack) = torch.stack(rows).chunk(2, -1), (MX_DOT * torch.stack(noise)).chunk(2, -1)
    first, second = 4 * torch.tanh(gate / 4) * torch.sigmoid(gate), 25 * torch.tanh(up / 25)
    # Slopes of at most 1.1 and 1. (1 - e) / (1 + e) is off by `FEW` of 1 where it cancels, times its beta.
    first_slack = 1.1 * gate_slack + 4 * FEW * torch.sigmoid(gate) + 2 * FEW * first.abs()
    second_slack = up_slack + 25 * FEW
    return situ(gate, up, NANO), first_slack * second.abs() + second_slack * first.abs() + first_slack * second_slack


def check_hidden(step, layer) -> None:
    """Codes and nibbles on every rank: those of a value within the slack."""
    for rank in range(step.world.shape.ranks):
        hidden, slack = (t.unflatten(-1, (-1, 32)) for t in exact_hidden(step, layer, rank))
        found = stored(step, layer, rank)
        low, high = (moe_code((hidden.abs() + sign * slack).clamp(min=0).amax(-1).float()) for sign in (-1, 1))
        assert ((low <= found.codes) & (found.codes <= high)).all(), f"codes of layer {layer}, rank {rank}"
        scale = e8m0_scale(found.codes)[..., None]
        nibbles = unpack_nibbles(found.packed).unflatten(-1, (-1, 32))
        either = [e2m1_nibbles((hidden + sign * slack) / scale) for sign in (-1, 1)]
        # A value that fp32 noise may take across zero has either sign.
        same = (nibbles == either[0]) | (nibbles == either[1]) | ((nibbles & 7 == 0) & (hidden.abs() <= 2 * slack))
        assert same.all(), f"{int((~same).sum())} nibbles of layer {layer}, rank {rank}"


def test_hidden_of_every_pick(recorded):
    """Random steps of all layers and shapes."""
    for layer in recorded.world.layers:
        check_hidden(recorded.step, layer)


def unit_latent(rows: int):
    """A latent down projection that makes row t's latent 1 at column t."""
    return columns(torch.eye(rows, LATENT))


@pytest.mark.parametrize("ranks", [1, 2])
def test_hidden_from_nothing_to_saturation(ranks):
    """Groups of saturated values (+-100), of tiny ones (2**-20) and of zeros, each with its own scale."""
    inter = NANO.moe_intermediate // ranks
    sizes = torch.tensor([2.0**12, 1.0, 2.0**-10, 0.0]).repeat(2)[: inter // 32].repeat_interleave(32)
    signs = torch.tensor([1.0, -1.0]).repeat(inter // 2)

    def w13(rank):
        dense = torch.zeros(EXPERTS, 2, inter, LATENT)
        dense[:, 0, :, :4] = (sizes * torch.tensor([1.0, 3, 0.5, 6]).repeat(inter // 4))[:, None]
        dense[:, 1, :, :4] = (sizes * signs)[:, None] * torch.tensor([1.0, 2, 4, 6])
        return dense.flatten(1, 2)

    picks = [[0, 5, 9, 31], [1, 5, 9, 30], [2, 3, 4, 5], [0, 1, 2, 3]]
    change = both(setting(gate=picking(picks), e_score_correction_bias=torch.zeros(EXPERTS),
                          routed_expert_down_proj=unit_latent(4)), experts(w13, "w13"))
    step = dialled(Shape(ranks, 2, 2), change).run()
    assert step.witness(FFN_LAYER).picks.tolist() == picks
    check_hidden(step, FFN_LAYER)
    for rank in range(ranks):
        found = stored(step, FFN_LAYER, rank)
        values = dequantise(found).unflatten(-1, (-1, 32))
        assert (values[:, :, 0].abs() == 96).all(), "100 rounds to 6 * 16"
        assert (values[:, :, 3] == 0).all() and (found.codes[:, :, 3] == 0).all()
        assert (values[:, :, 2] != 0).any() and values[:, :, 2].abs().max() < 2.0**-12


def test_a_zero_latent_gives_zero_hidden():
    """All of row 1's groups have code 0, whose power of two is no normal number: nothing may become NaN."""
    latent = torch.zeros(4, LATENT)
    latent[0], latent[2], latent[3, 40:50] = 1, 2.0**-100, 3
    step = dialled(Shape(2, 2, 2), setting(routed_expert_down_proj=columns(latent))).run()
    check_hidden(step, FFN_LAYER)
    for rank in range(2):
        found = stored(step, FFN_LAYER, rank)
        assert (found.codes[1] == 0).all() and (found.packed[1] & 0x77 == 0).all()


@pytest.mark.parametrize("shape", [Shape(1, 8, 2), Shape(2, 8, 2), Shape(2, 1, 2)], ids=str)
@pytest.mark.parametrize("how", ["same", "different"])
def test_smallest_and_largest_unions(shape, how):
    """Union = top_k, and all experts at once, each of some rows only."""
    picks = [[3, 16, 17, 28]] * shape.rows
    if how == "different":
        picks = [sorted((row % 8 + 8 * k) % EXPERTS for k in range(TOP_K)) for row in range(shape.rows)]
    step = dialled(shape, setting(gate=picking(picks), e_score_correction_bias=torch.zeros(EXPERTS))).run()
    assert step.witness(FFN_LAYER).picks.tolist() == picks
    check_hidden(step, FFN_LAYER)


def test_slots_in_any_order():
    """Where a pick is stored follows its slot, not its expert's place in the union."""
    picks = [[31, 0, 16, 8], [8, 16, 0, 31], [16, 31, 8, 0], [0, 1, 2, 3]]
    step = dialled(Shape(2, 2, 2), setting(gate=picking(picks), e_score_correction_bias=torch.zeros(EXPERTS))).run()
    assert step.witness(FFN_LAYER).picks.tolist() == picks
    check_hidden(step, FFN_LAYER)


def test_a_nan_latent_stays_in_its_row():
    """A NaN group has no E2M1 form, but no other row sees what becomes of it."""
    latent = torch.randn(4, LATENT, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16).float()
    steps = []
    for bad in (False, True):
        world = dialled(Shape(2, 2, 2), setting(routed_expert_down_proj=columns(latent)))
        if bad:
            for prefix in world.prefix:
                prefix[2, 200] = torch.nan
        steps.append(world.run())
    assert_same(steps[1].everything(), steps[0].everything(), [0, 1, 3])
