"""Both MXFP4 rules against a slow scalar implementation that shares nothing with the vectorised one."""

import math
import struct
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_k3_specdec.reference import mx

MAGNITUDES = [Fraction(n, 2) for n in (0, 1, 2, 3, 4, 6, 8, 12)]


def nearest_index(x: Fraction) -> int:
    """The E2M1 index nearest to `x` >= 0, an even one at a tie."""
    return min(range(8), key=lambda i: (abs(MAGNITUDES[i] - x), i % 2))


def ceil_log2_code(amax: float) -> int:
    """The smallest biased exponent whose power of two reaches fp32(amax / 6), by trial."""
    t = struct.unpack("f", struct.pack("f", amax * struct.unpack("f", struct.pack("f", 1 / 6))[0]))[0]
    if t == 0:
        return 0
    return next(code for code in range(255) if code == 254 or Fraction(t) <= Fraction(2) ** (code - 127))


def even_rule_code(amax: float) -> int:
    """The exponent that leaves amax in [3.5, 7) after scaling: a significand of 1.75 and more is bumped."""
    if amax == 0:
        return 0
    mantissa, exponent = math.frexp(amax)
    return min(max(exponent - 1 + (2 * mantissa >= 1.75) - 2, -127), 127) + 127


def scalar_quantise(values: list[float], code: int) -> list[int]:
    """Nibbles of one group by exact rational arithmetic."""
    scale = Fraction(2) ** (code - 127)
    return [nearest_index(abs(Fraction(v)) / scale) | (8 if math.copysign(1, v) < 0 else 0) for v in values]


# Below 3.6e-38 the bit trick of the MoE rule is not a ceiling any more, and is the contract all the same.
finite = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda v: v == 0 or 1e-36 < abs(v) < 1e38)


@settings(deadline=None, max_examples=150)
@given(st.lists(finite, min_size=32, max_size=32), st.booleans())
def test_quantisers_equal_the_scalar_rule(values, as_bf16):
    """Codes and nibbles, from bf16 and fp32."""
    x = torch.tensor(values)
    x = x.to(torch.bfloat16) if as_bf16 else x
    exact = x.to(torch.float32).tolist()
    amax = max(map(abs, exact))
    for quantise, rule in ((mx.quantise_moe, ceil_log2_code), (mx.quantise_even, even_rule_code)):
        got = quantise(x)
        code = rule(amax)
        assert got.codes.tolist() == [code]
        assert mx.unpack_nibbles(got.packed).tolist() == scalar_quantise(exact, code)


@settings(deadline=None, max_examples=50)
@given(st.floats(width=32, min_value=2**-20, max_value=2**20))
def test_both_rules_saturate_only_where_they_may(amax):
    """The MoE rule never, the even rule in [6, 7)."""
    x = torch.zeros(32)
    x[3] = amax
    for rule, limit in ((mx.moe_code, 6), (mx.even_code, 7)):
        assert amax / 2.0 ** (int(rule(x.abs().amax())) - 127) <= limit * (1 + 2**-22)


def test_ties_go_to_even():
    """All seven ties, and their neighbours."""
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    assert mx.E2M1_VALUES[mx.e2m1_nibbles(ties).int()].tolist() == [0, 1, 1, 2, 2, 4, 4]
    assert mx.e2m1_nibbles(-ties).tolist() == (mx.e2m1_nibbles(ties) | 8).tolist()
    beyond = torch.tensor([0.2500001, 0.7499999, 5.0000005, 6.0, 7.0, 1e30])
    assert mx.E2M1_VALUES[mx.e2m1_nibbles(beyond).int()].tolist() == [0.5, 0.5, 6, 6, 6, 6]


def test_moe_rule_around_its_steps():
    """6 * 2^k still fits."""
    # 6 * 2^k still fits the exponent k; the next float does not.
    for k in range(-20, 20):
        amax = torch.tensor(6 * 2.0**k)
        assert int(mx.moe_code(amax)) == 127 + k
        assert int(mx.moe_code(amax * 1.001)) == 128 + k


def test_zero_group_has_code_zero_and_even_rule_saturates():
    """The two special cases."""
    zero = mx.quantise_moe(torch.zeros(2, 64))
    assert not zero.codes.any() and not zero.packed.any()
    x = torch.full((32,), 6.75)
    assert mx.dequantise(mx.quantise_moe(x)).tolist() == [6.0] * 32  # 6.75 / 2 = 3.375 is nearest to 3
    assert mx.dequantise(mx.quantise_even(x)).tolist() == [6.0] * 32


def test_nibbles_round_trip_and_low_nibble_is_even(rng):
    """Packing is a bijection."""
    nibbles = torch.randint(0, 16, (5, 64), generator=rng, dtype=torch.uint8)
    packed = mx.pack_nibbles(nibbles)
    assert mx.unpack_nibbles(packed).equal(nibbles)
    assert (packed & 15).equal(nibbles[:, ::2])


def test_dequantise_is_exact(rng):
    """Against rational arithmetic."""
    packed = torch.randint(0, 256, (4, 64), generator=rng, dtype=torch.uint8)
    codes = torch.randint(0, 250, (4, 4), generator=rng, dtype=torch.uint8)
    values = mx.dequantise(mx.Mx(packed, codes))
    for row in range(4):
        for column in (0, 1, 31, 32, 127):
            nibble = int(packed[row, column // 2]) >> (4 * (column % 2)) & 15
            expected = MAGNITUDES[nibble & 7] * Fraction(2) ** (int(codes[row, column // 32]) - 127)
            assert Fraction(float(values[row, column])) == (-expected if nibble & 8 else expected)


@pytest.mark.parametrize("code", [0, 1, 127, 254])
def test_scales(code):
    """2 ** (code - 127), subnormal ones too."""
    assert mx.e8m0_scale(torch.tensor([code], dtype=torch.uint8)).item() == 2.0 ** (code - 127)


def test_scale_255_is_nan():
    """It must show when it is used."""
    assert mx.e8m0_scale(torch.tensor([255], dtype=torch.uint8)).isnan().all()
