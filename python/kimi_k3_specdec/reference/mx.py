"""MXFP4: E2M1 values in groups of 32 along K, one E8M0 scale each (numerics §5.5, §6.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .geometry import MX_GROUP

E2M1_VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
"""float32 value of every nibble: sign << 3 | magnitude index."""

_BYTE_VALUES = torch.stack((E2M1_VALUES.repeat(16), E2M1_VALUES.repeat_interleave(16)), 1).view(torch.float64)[:, 0]
"""The two float32 values of every byte, low nibble first, as one 64-bit element: twice as fast to look up."""

_ROUND_DOWN_AT_TIE = (0.25, 1.25, 2.5, 5.0)
_ROUND_UP_AT_TIE = (0.75, 1.75, 3.5)
_ONE_SIXTH = torch.tensor(1 / 6, dtype=torch.float32)


class Mx(NamedTuple):
    """A quantised tensor: `packed` uint8 [..., K / 2], even column in the low nibble, `codes` uint8 [..., K / 32]."""

    packed: Tensor
    codes: Tensor


def pack_nibbles(nibbles: Tensor) -> Tensor:
    """uint8 nibbles [..., K] as bytes [..., K / 2]: the even column in the low half."""
    return nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)


def unpack_nibbles(packed: Tensor) -> Tensor:
    """The inverse of `pack_nibbles`: uint8 [..., K], each 0 to 15."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)


def e8m0_scale(codes: Tensor) -> Tensor:
    """2 ** (code - 127) as float64 for uint8 `codes`; code 255 is NaN."""
    scale = torch.ldexp(torch.ones(codes.shape, dtype=torch.float64), codes.to(torch.int32) - 127)
    return torch.where(codes == 255, torch.nan, scale)


def e2m1_nibbles(x: Tensor) -> Tensor:
    """uint8 nibbles nearest to `x`: ties to the even index, saturating at 6, the sign of zero kept."""
    magnitude = x.abs()
    index = sum((magnitude > tie).to(torch.uint8) for tie in _ROUND_DOWN_AT_TIE)
    index = index + sum((magnitude >= tie).to(torch.uint8) for tie in _ROUND_UP_AT_TIE)
    return index | (torch.signbit(x).to(torch.uint8) << 3)


def moe_code(amax: Tensor) -> Tensor:
    """The MoE rule: biased exponent of the smallest power of two >= amax / 6 (numerics §5, step 5).

    `amax` float32, not negative; uint8 out. Never saturates a value; an amax of 0 gives 0.
    """
    t = amax.to(torch.float32) * _ONE_SIXTH
    bits = t.view(torch.int32).to(torch.int64)
    return (((bits + 0x7FFFFF) >> 23) & 0xFF).clamp(max=254).to(torch.uint8)


def even_code(amax: Tensor) -> Tensor:
    """The MLA bmm rule: the exponent is bumped when the significand is >= 1.75 (numerics §6.3).

    `amax` float32, not negative; uint8 out. Scaled values in [6, 7) saturate.
    """
    bits = amax.to(torch.float32).contiguous().view(torch.int32).to(torch.int64)
    bumped = ((bits + 0x200000) & 0xFF800000).to(torch.int32).view(torch.float32)
    exponent = torch.frexp(bumped.to(torch.float64)).exponent - 1 - 2
    exponent = torch.where(bumped == 0, torch.full_like(exponent, -127), exponent)
    return (exponent.clamp(-127, 127) + 127).to(torch.uint8)


def _quantise(x: Tensor, rule: Callable[[Tensor], Tensor]) -> Mx:
    groups = x.to(torch.float32).unflatten(-1, (-1, MX_GROUP))
    codes = rule(groups.abs().amax(-1))
    # Powers of two divide exactly in float64, subnormal ones included: the only rounding is E2M1's own.
    scaled = groups.to(torch.float64) / e8m0_scale(codes)[..., None]
    return Mx(pack_nibbles(e2m1_nibbles(scaled).flatten(-2)), codes)


def quantise_moe(x: Tensor) -> Mx:
    """bf16 or fp32 `x` [..., K] by the MoE rule: the latent from bf16 (step 5), h from fp32 (step 7)."""
    return _quantise(x, moe_code)


def quantise_even(x: Tensor) -> Mx:
    """bf16 or fp32 `x` [..., K] by the rule of the MLA bmms, weights and activations alike."""
    return _quantise(x, even_code)


def dequantise(mx: Mx) -> Tensor:
    """The exact values, float32 [..., K]; only codes of 253 and more, which no sane weight has, overflow."""
    pairs = _BYTE_VALUES.index_select(0, mx.packed.flatten().to(torch.int32))
    values = pairs.view(torch.float32).reshape(*mx.codes.shape, MX_GROUP)
    return values.mul_(e8m0_scale(mx.codes).to(torch.float32)[..., None]).flatten(-2)
