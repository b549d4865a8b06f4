"""Source and result modifiers around the pseudocode, which does not describe them.

Facts of AMD's CDNA3 and CDNA4 instruction set manuals, chapters on VOP3, VOP3P, SDWA and DPP; the vectors of
test_modifiers.py were derived from the same pages by hand, a second time.
"""

from __future__ import annotations

import re

from .operands import Line, Operand
from .pseudocode.number import FORMATS, Exact, Float, convert, multiply, order
from .pseudocode.values import Cell

SELECT = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8)} | {
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
    "DWORD": (0, 32),
}
OMOD = {"mul:2": 1, "mul:4": 2, "div:2": -1}
# These read `op_sel` in their own text.
SELECT_THEMSELVES = re.compile(r"v_(pk_mov_b32|fma_mix|cvt_scalef32|cvt_pk_fp8|cvt_pk_bf8|cvt_sr_|permlane)")


def kind_of(mnemonic: str) -> str:
    """The type that the mnemonic ends in."""
    base = re.sub(r"_(e32|e64|sdwa|dpp)$", "", mnemonic)
    return next((part for part in reversed(base.split("_")) if re.fullmatch(r"(bf|[fuib])\d+", part)), "b32")


def result_kind(mnemonic: str) -> str:
    """The type of the result: of a conversion the first one that it names."""
    match = re.match(r"v_cvt_(f16|f32)_", mnemonic)
    return match[1] if match else kind_of(mnemonic)


def width_of(mnemonic: str) -> int:
    """Bits of one value of the sources."""
    return 16 if kind_of(mnemonic) in ("f16", "u16", "i16", "b16", "bf16") else 64 if "64" in kind_of(mnemonic) else 32


def dpp_lane(line: Line, lane: int) -> int | None:
    """The lane that DPP reads for `lane`; none if there is no such lane."""
    modifiers, row, place = line.modifiers, lane & ~15, lane & 15
    if "quad_perm" in modifiers:
        return lane & ~3 | line.bits("quad_perm")[lane & 3]
    for name, value in modifiers.items():
        amount = int(value, 0) if value.isdigit() else 0
        if name == "row_shl":
            return lane + amount if place + amount < 16 else None
        if name == "row_shr":
            return lane - amount if place >= amount else None
        if name == "row_ror":
            return row | (place - amount) % 16
        if name == "row_newbcast":
            return row | amount
        if name == "row_bcast":
            return (row - 1 if lane >= 16 else None) if amount == 15 else (31 if lane >= 32 else None)
        if name in ("wave_shl", "wave_shr"):
            source = lane + (1 if name == "wave_shl" else -1)
            return source if 0 <= source < 64 else None
        if name in ("wave_rol", "wave_ror"):
            return (lane + (1 if name == "wave_rol" else -1)) % 64
        if name == "row_mirror":
            return row | 15 - place
        if name == "row_half_mirror":
            return lane & ~7 | 7 - (lane & 7)
    return lane


def is_dpp(line: Line) -> bool:
    """Whether the line is in DPP form."""
    return "row_mask" in line.modifiers


def dpp_writes(line: Line, lane: int, exec_mask: int) -> bool:
    """Whether DPP lets `lane` be written."""
    rows, banks = (int(line.modifiers[name], 0) for name in ("row_mask", "bank_mask"))
    if not rows >> (lane // 16) & 1 or not banks >> (lane % 16 // 4) & 1:
        return False
    source = dpp_lane(line, lane)
    return "bound_ctrl" in line.modifiers or (source is not None and bool(exec_mask >> source & 1))


def op_sel_bits(line: Line, encoding: str) -> int:
    """The field: a bit for each source, and of VOP3 bit 3 for the destination, which is printed last."""
    listed = line.bits("op_sel")
    sources = listed[:-1] if encoding == "vop3" else listed
    bits = sum(bit << at for at, bit in enumerate(sources))
    return bits | (listed[-1] << 3 if encoding == "vop3" and listed else 0)


def selected(bits: int, selector: str, extended: bool) -> int:
    """SDWA's byte or word of a source."""
    low, width = SELECT[selector]
    value = bits >> low & ((1 << width) - 1)
    return value | (0xFFFFFFFF << width & 0xFFFFFFFF) if extended and value >> (width - 1) else value


def with_sign(bits: int, operand: Operand, width: int) -> int:
    """Absolute value, then negation."""
    sign = 1 << (width - 1)
    bits = bits & ~sign if operand.absolute else bits
    return bits ^ sign if operand.negated else bits


def packed(line: Line, bits: int, index: int, width: int) -> int:
    """The halves of a packed source: selected by `op_sel` and `op_sel_hi`, negated by `neg_lo` and `neg_hi`."""
    mask, result = (1 << width) - 1, 0
    for half, (select, negate) in enumerate((("op_sel", "neg_lo"), ("op_sel_hi", "neg_hi"))):
        chosen = line.bits(select, "[0,0,0]" if half == 0 else "[1,1,1]")[index]
        value = bits >> width * chosen & mask
        if line.bits(negate, "[0,0,0]")[index]:
            value ^= 1 << (width - 1)
        result |= value << width * half
    return result


def source(line: Line, operand: Operand, index: int, bits: int, encoding: str) -> int:
    """A source's bits as the operation sees them."""
    mnemonic = line.mnemonic
    if f"src{index}_sel" in line.modifiers:
        bits = selected(bits, line.modifiers[f"src{index}_sel"], operand.extended)
    if encoding == "vop3p" and not SELECT_THEMSELVES.match(mnemonic):
        return packed(line, bits, index, 32 if mnemonic.endswith("f32") and "_pk_" in mnemonic else 16)
    width = width_of(mnemonic)
    op_sel = line.bits("op_sel")
    if encoding == "vop3" and op_sel and not SELECT_THEMSELVES.match(mnemonic) and op_sel[index]:
        bits >>= 16
    return with_sign(bits, operand, width)


def finish_float(line: Line, cell: Cell, kind: str) -> None:
    """The output modifier, then the clamp to 0 to 1, of what was written as floats."""
    form = FORMATS[kind]
    scale = next((OMOD[f"{name}:{value}"] for name, value in line.modifiers.items() if f"{name}:{value}" in OMOD), 0)
    for low in range(0, cell.width, form.width):
        mask = (1 << form.width) - 1
        if cell.written >> low & mask != mask or not (scale or "clamp" in line.modifiers):
            continue
        value = Float(form, cell.bits >> low & mask, bool(cell.loose >> low & mask))
        value = multiply(value, Exact(1, scale)) if scale else value
        if "clamp" in line.modifiers:
            value = clamped(value)
        cell.write(low, form.width, value.bits, mask if value.loose else 0)


def clamped(value: Float) -> Float:
    """Limited to 0 to 1; with DX10 clamp, which compute kernels set, a NaN becomes zero."""
    zero, one = Float(value.form, 0), convert(Exact(1, 0), value.form)
    if value.is_nan or value.sign or value.magnitude == 0:
        return zero
    return one if order(value, one) == 1 else value


def destination(line: Line, cell: Cell, before: int, encoding: str) -> None:
    """Puts the result where `dst_sel` or bit 3 of `op_sel` says."""
    op_sel = line.bits("op_sel")
    if "dst_sel" in line.modifiers:
        low, width = SELECT[line.modifiers["dst_sel"]]
        mask, bits, loose = (1 << width) - 1, cell.bits, cell.loose
        if line.modifiers["dst_sel"] == "DWORD":
            return
        rest = {"UNUSED_PAD": 0, "UNUSED_PRESERVE": before & ~(mask << low)}.get(line.modifiers["dst_unused"], 0)
        if line.modifiers["dst_unused"] == "UNUSED_SEXT" and bits >> (width - 1) & 1:
            rest = 0xFFFFFFFF << (low + width) & 0xFFFFFFFF
        cell.write(0, 32, rest | (bits & mask) << low, (loose & mask) << low)
    elif encoding == "vop3" and op_sel and op_sel[-1] and not SELECT_THEMSELVES.match(line.mnemonic):
        if width_of(line.mnemonic) == 16:
            cell.write(0, 32, before & 0xFFFF | (cell.bits & 0xFFFF) << 16, (cell.loose & 0xFFFF) << 16)

