"""Matrix products in double precision, driven by the operand maps of matrix_maps.toml."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .data import load
from .pseudocode.number import FORMATS, Float
from .special import as_double
from .state import LANES

FIRST = {"d": 0, "a": 32, "b": 64, "c": 96, "scale_a": 128, "scale_b": 129}
REGISTERS = 136
BITS = {"f32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}


@dataclass(frozen=True)
class Product:
    """One instruction with its operand formats; `is_scaled`: with the scale operands in two registers."""

    mnemonic: str
    size: int
    k: int
    blocks: int
    a: str
    b: str
    is_f8f6f4: bool = False
    is_scaled: bool = False
    op_sel: tuple[int, int] = (0, 0)

    @property
    def result_registers(self) -> int:
        """Registers of C and D."""
        return self.size * self.size * self.blocks // LANES

    def line(self) -> str:
        """The instruction on the registers of FIRST."""
        widths = [self.k * self.size * self.blocks // LANES * BITS[form] // 32 for form in (self.a, self.b)]
        operands = [
            span(FIRST[name], width)
            for name, width in zip(
                "dabc", (self.result_registers, *widths, self.result_registers), strict=True
            )
        ]
        text = f"{self.mnemonic} {', '.join(operands)}"
        if self.is_scaled:
            low, high = [[selector >> bit & 1 for selector in self.op_sel] for bit in (0, 1)]
            text += f", v{FIRST['scale_a']}, v{FIRST['scale_b']} op_sel:[{low[0]},{low[1]},0] "
            text += f"op_sel_hi:[{high[0]},{high[1]},0]"
        if self.is_f8f6f4:
            codes = list(load("matrix_maps")["scaled"][self.mnemonic]["formats"])
            text += f" cbsz:{codes.index(self.a)} blgp:{codes.index(self.b)}"
        return text


def span(first: int, count: int) -> str:
    """A register range as the assembler reads it."""
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def products() -> list[Product]:
    """Every matrix instruction in every combination of formats that has a map of its own."""
    maps = load("matrix_maps")
    found = [
        Product(name, facts["size"], facts["k"], facts["blocks"], facts["a"], facts["b"])
        for name, facts in maps["instructions"].items()
    ]
    for name, facts in maps["scaled"].items():
        for a in facts["formats"]:
            for b in facts["formats"]:
                number = len(found)
                selectors = (number % 4, number // 4 % 4)
                is_scaled = "scale" in name
                found.append(Product(name, facts["size"], facts["k"], 1, a, b, True, is_scaled, selectors))
    return found


def code_values(form: str) -> np.ndarray:
    """The value of every code of a format of at most eight bits."""
    if form == "i8":
        return np.arange(256).astype(np.int8).astype(np.float64)
    return np.array([as_double(Float(FORMATS[form], code)) for code in range(1 << BITS[form])])


def decoded(form: str, codes: np.ndarray) -> np.ndarray:
    """Values of codes."""
    if form == "f32":
        return codes.astype(np.uint32).view(np.float32).astype(np.float64)
    if form == "f16":
        return codes.astype(np.uint16).view(np.float16).astype(np.float64)
    if form == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return code_values(form)[codes]


def place_of(product: Product, form: str, line: int, k: int, block: int) -> tuple[int, int]:
    """(lane, index of the value in it) of row or column `line` and K."""
    per_lane = product.k * product.size * product.blocks // LANES
    groups = LANES // product.size
    if product.is_f8f6f4 and form in load("matrix_maps")["scaled"][product.mnemonic]["two_runs"]:
        run, at = divmod(k, 16)
        return line + product.size * (run % groups), run // groups * 16 + at
    group, at = divmod(k, per_lane)
    return line + product.size * (block + product.blocks * group), at


def operand(product: Product, vgpr: np.ndarray, name: str) -> np.ndarray:
    """A or B as [blocks, size, k]."""
    form, first = getattr(product, name), FIRST[name]
    bits = BITS[form]
    codes = np.zeros((product.blocks, product.size, product.k), np.int64)
    for block, line, k in np.ndindex(codes.shape):
        lane, at = place_of(product, form, line, k, block)
        bit = at * bits
        both = int(vgpr[first + bit // 32, lane]) | int(vgpr[first + bit // 32 + 1, lane]) << 32
        codes[block, line, k] = both >> bit % 32 & ((1 << bits) - 1)
    values = decoded(form, codes)
    if product.is_scaled:
        register = vgpr[FIRST[f"scale_{name}"]]
        code = register >> 8 * product.op_sel["ab".index(name)] & 0xFF
        for line, k in np.ndindex(product.size, product.k):
            values[0, line, k] *= 2.0 ** (int(code[k // 32 * product.size + line]) - 127)
    return values


def results(product: Product, vgpr: np.ndarray, name: str) -> np.ndarray:
    """C or D as [blocks, size, size]."""
    size, first = product.size, FIRST[name]
    out = np.zeros((product.blocks, size, size))
    for block, row, column in np.ndindex(out.shape):
        if size == 4:
            register, lane = row, 4 * block + column
        else:
            groups = LANES // size
            register = block * size * size // LANES + row // (4 * groups) * 4 + row % 4
            lane = column + size * (row // 4 % groups)
        word = vgpr[first + register, lane : lane + 1]
        out[block, row, column] = (word.view(np.int32) if "_i32_" in product.mnemonic else word.view(np.float32))[0]
    return out


def random_registers(product: Product, random: np.random.Generator) -> np.ndarray:
    """Registers whose operands are finite; scales around one."""
    vgpr = random.integers(0, 1 << 32, (REGISTERS, LANES), dtype=np.uint32)
    for name in "ab":
        form, first = getattr(product, name), FIRST[name]
        if form == "f32":
            vgpr[first : first + 1] = random.standard_normal(LANES).astype(np.float32).view(np.uint32)
        elif form in ("f16", "bf16"):
            floats = random.standard_normal((16, 2 * LANES)).astype(np.float32)
            halves = floats.astype(np.float16).view(np.uint16) if form == "f16" else floats.view(np.uint32) >> 16
            vgpr[first : first + 16] = halves.astype(np.uint32)[:, ::2] | halves.astype(np.uint32)[:, 1::2] << 16
        elif form in ("fp8", "bf8"):
            # The top exponent bit is cleared: neither infinities nor NaNs.
            vgpr[first : first + 16] &= 0xBFBFBFBF
    c = FIRST["c"]
    if "_i32_" in product.mnemonic:
        vgpr[c : c + 32] >>= 8
    else:
        vgpr[c : c + 32] = random.standard_normal((32, LANES)).astype(np.float32).view(np.uint32)
    for name in ("scale_a", "scale_b"):
        codes = random.integers(120, 135, (LANES, 4)).astype(np.uint32)
        vgpr[FIRST[name]] = codes[:, 0] | codes[:, 1] << 8 | codes[:, 2] << 16 | codes[:, 3] << 24
    return vgpr
