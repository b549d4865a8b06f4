"""The AttnRes mix against its formula in plain Python."""

import math

import pytest
import torch

from kimi_k3_specdec.reference import attn_res

EPS = 1e-5


def scalar_mix(source, norm, proj, out_norm):
    """One row: numerics §3 with lists and float64."""
    hidden = len(norm)
    logits = []
    for v in source:
        rstd = 1 / math.sqrt(sum(x * x for x in v) / hidden + EPS)
        logits.append(sum(x * (n * p) for x, n, p in zip(v, norm, proj, strict=True)) * rstd)
    exps = [math.exp(v - max(logits)) for v in logits]
    weights = [e / sum(exps) for e in exps]
    mixed = [sum(w * v[d] for w, v in zip(weights, source, strict=True)) for d in range(hidden)]
    if out_norm is None:
        return weights, mixed
    rstd = 1 / math.sqrt(sum(x * x for x in mixed) / hidden + EPS)
    return weights, [x * rstd * w for x, w in zip(mixed, out_norm, strict=True)]


@pytest.mark.parametrize("num_blocks", [0, 1, 3])
@pytest.mark.parametrize("normed", [True, False])
def test_seam_equals_the_formula(num_blocks, normed, rng):
    """Weights and output, with and without a norm."""
    def bf16(*shape):
        return torch.randn(shape, generator=rng).to(torch.bfloat16)

    prefix, blocks, norm, proj, out_norm = bf16(3, 64), bf16(3, 4, 64), bf16(64), bf16(1, 64), bf16(64)
    source = attn_res.sources(prefix, blocks, num_blocks)
    got = attn_res.seam(source, norm, proj, out_norm if normed else None, EPS)
    truth = attn_res.seam(source, norm, proj, out_norm if normed else None, EPS, exact=True)
    assert source.shape == (3, num_blocks + 1, 64) and source[:, -1].equal(prefix)
    for row in range(3):
        weights, x = scalar_mix(
            source[row].double().tolist(), norm.double().tolist(), proj[0].double().tolist(),
            out_norm.double().tolist() if normed else None,
        )
        torch.testing.assert_close(truth.x[row], torch.tensor(x, dtype=torch.float64), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(got.weights[row], torch.tensor(weights), rtol=0, atol=1e-5)
        # One bf16 rounding of a value that fp32 computed.
        torch.testing.assert_close(got.x[row].double(), truth.x[row], rtol=1.01 * 2**-8, atol=1e-6)


def test_no_block_gives_the_prefix_itself(rng):
    """A softmax of one; no block is read."""
    prefix = torch.randn(2, 64, generator=rng).to(torch.bfloat16)
    ones = torch.ones(64, dtype=torch.bfloat16)
    blocks = torch.full((2, 1, 64), torch.nan, dtype=torch.bfloat16)
    assert attn_res.seam(attn_res.sources(prefix, blocks, 0), ones, ones[None], None, EPS).x.equal(prefix)


def test_prefix_is_rounded_once():
    """Before it is used."""
    prefix, delta = torch.tensor([[1.0]]).bfloat16(), torch.tensor([[2.0**-8]]).bfloat16()
    assert attn_res.advance_prefix(prefix, delta).item() == 1.0
    assert attn_res.advance_prefix(prefix, None) is prefix
