"""What an instruction should do to a state, by AMD's pseudocode: registers, and which of their bits are specified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import modifiers
from .data import load
from .encodings import IMMEDIATE, Instruction
from .operands import Line, Operand, parse
from .pseudocode.evaluate import Evaluator
from .pseudocode.functions import Unspecified
from .pseudocode.library import Library, parsed
from .pseudocode.number import FORMATS, Exact, convert
from .pseudocode.values import Cell, Int
from .state import EXEC, LANES, M0, VCC, State

SELECTORS = {"BYTE0": 0, "BYTE1": 1, "BYTE2": 2, "BYTE3": 3, "WORD1": 5}
CVT_OFF = [(code - 16 if code > 7 else code) for code in range(16)]


class Registers(list):
    """A register file or lane array of which only some elements are there."""

    def __init__(self, elements: dict[int, Any]) -> None:
        """`elements` by number."""
        super().__init__()
        self.elements = elements

    def __getitem__(self, at: Any) -> Any:
        """One element."""
        return self.elements[at]


@dataclass
class Expectation:
    """A state, the specified bits of its registers, and those that are a NaN of free payload."""

    state: State
    vector_known: np.ndarray
    vector_loose: np.ndarray

    @classmethod
    def of(cls, state: State) -> Expectation:
        """Nothing changes."""
        known = np.full(state.vgpr.shape, 0xFFFFFFFF, np.uint32)
        return cls(state.copy(), known, np.zeros_like(known))

    def set_vector(self, operand: Operand, lane: int, cell: Cell) -> None:
        """Puts what was written to a cell into an operand's registers of one lane."""
        for at in range(operand.count):
            word = slice_of(cell.written, at)
            self.state.vgpr[operand.first + at, lane] = slice_of(cell.bits, at)
            self.vector_loose[operand.first + at, lane] = slice_of(cell.loose, at)
            if word:
                self.vector_known[operand.first + at, lane] = word

    def set_scalar(self, operand: Operand, cell: Cell) -> None:
        """The same for scalar registers."""
        for at in range(operand.count):
            self.state.sgpr[operand.first + at] = slice_of(cell.bits, at)


def slice_of(bits: int, word: int) -> int:
    """A 32-bit word of a long number."""
    return bits >> 32 * word & 0xFFFFFFFF


def inline_float(text: str, kind: str) -> int:
    """The bits of an inline constant in a format."""
    top, bottom = float(text).as_integer_ratio()
    return convert(Exact(top, 1 - bottom.bit_length()), FORMATS[kind]).bits


def source_bits(operand: Operand, state: State, lane: int, double: bool = False) -> int:
    """A source's bits in one lane."""
    if operand.file == "constant":
        return operand.first & 0xFFFFFFFF if operand.first < 0 and not double else operand.first & 0xFFFFFFFFFFFFFFFF
    if operand.file == "float":
        return inline_float(operand.text, "f64" if double else "f32")
    bits = 0
    for at in range(operand.count):
        word = state.vgpr[operand.first + at, lane] if operand.file == "v" else state.sgpr[operand.first + at]
        bits |= int(word) << 32 * at
    return bits


def lane_source(line: Line, operand: Operand, index: int, lane: int, state: State) -> int:
    """A source's bits, from the lane that DPP names; a lane that is not there or disabled reads as zero."""
    is_double = modifiers.width_of(line.mnemonic) == 64
    if operand.file == "float" and modifiers.width_of(line.mnemonic) == 16:
        return inline_float(operand.text, "f16")
    if index or not modifiers.is_dpp(line):
        return source_bits(operand, state, lane, is_double)
    source = modifiers.dpp_lane(line, lane)
    is_there = source is not None and state.pair(EXEC) >> source & 1
    return source_bits(operand, state, source, is_double) if is_there else 0


class Oracle:
    """Answers what an instruction should do."""

    def __init__(self) -> None:
        """Reads the installed pseudocode."""
        self.library = Library()
        self.corrections = load("corrections")

    def text(self, instruction: Instruction) -> str | None:
        """The pseudocode of an instruction, corrected where it must be."""
        if instruction.mnemonic in self.corrections:
            return self.corrections[instruction.mnemonic]["text"]
        found = self.library.find(instruction.encoding, instruction.opcode)
        return found[1] if found else self.library.lookup(instruction.mnemonic.upper())

    def names(self, line: Line, state: State) -> dict[str, Any]:
        """What every text may name."""
        return {
            "EXEC": Cell(state.pair(EXEC), 64),
            "VCC": Cell(state.pair(VCC), 64),
            "SCC": Cell(int(state.scc), 1),
            "M0": Cell(int(state.sgpr[M0]), 32),
            "PC": Cell(state.pc, 64),
            "VCCZ": Int(int(state.pair(VCC) == 0), 1),
            "EXECZ": Int(int(state.pair(EXEC) == 0), 1),
            "PI": convert(Exact(0x3243F6A8885A308D313198A2E, -96), FORMATS["f64"]),
            "WAVE_MODE.IEEE": Int(1, 1),
            "SDWA_SRC0_SEL": Int(0, 3),
            "OPSEL_HI": Int(sum(bit << at for at, bit in enumerate(op_sel_hi(line))), 3, True),
            **{name: Int(code, 3, True) for name, code in SELECTORS.items()},
            "CVT_OFF_TABLE": [convert(Exact(value, -4), FORMATS["f32"]) for value in CVT_OFF],
            "OVERFLOW_F32": convert(Exact(1, 500), FORMATS["f32"]),
            "UNDERFLOW_F32": convert(Exact(0, 0), FORMATS["f32"]),
            "OPSEL": Int(0, 4, True),
            **truth_table(line),
        }

    def evaluate(self, text: str, names: dict[str, Any], saturates: bool = False) -> None:
        """Runs a text on names."""
        Evaluator(names, self.library.lookup, saturates).run(parsed(text))

    def expect(self, instruction: Instruction, text: str, state: State) -> Expectation:
        """The state after an instruction whose pseudocode is `text`."""
        line = parse(instruction.text)
        expectation = Expectation.of(state)
        expectation.state.pc = state.pc + len(instruction.code)
        if instruction.encoding.startswith("so"):
            self.scalar(instruction, line, text, state, expectation)
        elif "VGPR" in text and "VGPR[laneId]" not in text:
            self.whole_wave(line, text, state, expectation)
        else:
            self.lanes(instruction, line, text, state, expectation)
        return expectation

    def scalar(self, instruction: Instruction, line: Line, text: str, state: State, out: Expectation) -> None:
        """A scalar instruction."""
        names, operands = self.names(line, state), list(line.operands)
        destination = None
        encoding = instruction.encoding
        has_result = encoding in ("sop1", "sop2") or (encoding == "sopk" and "cmpk" not in line.mnemonic)
        if has_result and not line.mnemonic.startswith(("s_setpc", "s_set_gpr")):
            destination = operands.pop(0)
        names["SIMM16"] = Int(IMMEDIATE if encoding == "sopk" else 5, 16, True)
        for at, operand in enumerate(operands):
            names[f"S{at}"] = Cell(source_bits(operand, state, 0, double="64" in line.mnemonic), 64)
            names[f"SRC{at}"] = Int(operand.first)
        if destination:
            names["D0"] = names["D"] = Cell(source_bits(destination, state, 0), 32 * destination.count)
            names["DST"] = Int(destination.first)
        names["SGPR"] = [Cell(int(x) | int(y) << 32, 64) for x, y in zip(state.sgpr, [*state.sgpr[1:], 0], strict=True)]
        self.evaluate(text, names)
        if destination:
            out.set_scalar(destination, names["D0"])
        for at, cell in enumerate(names["SGPR"]):
            for word in range(2):
                if slice_of(cell.written, word):
                    out.state.sgpr[at + word] = slice_of(cell.bits, word)
        for name, register in (("EXEC", EXEC), ("VCC", VCC)):
            if names[name].written:
                out.state.set_pair(register, names[name].bits)
        out.state.sgpr[M0] = names["M0"].bits if names["M0"].written else out.state.sgpr[M0]
        out.state.scc = bool(names["SCC"].bits)
        if names["PC"].written:
            out.state.pc = names["PC"].bits & 0xFFFFFFFF

    def whole_wave(self, line: Line, text: str, state: State, out: Expectation) -> None:
        """An instruction that moves values between lanes, all of them at once."""
        names = self.names(line, state)
        destination, *sources = line.operands
        used = [operand.first for operand in line.operands if operand.file == "v"]
        names["VGPR"] = [
            Registers({register: Cell(int(state.vgpr[register, lane])) for register in used}) for lane in range(LANES)
        ]
        names["VDST"] = Int(destination.first)
        for at, operand in enumerate(sources):
            names[f"SRC{at}"] = Int(operand.first)
            names[f"S{at}"] = Cell(source_bits(operand, state, 0))
        names["D0"] = Cell(0)
        self.evaluate(text, names)
        if destination.file == "s":
            out.set_scalar(destination, names["D0"])
        for register in used:
            for lane in range(LANES):
                out.state.vgpr[register, lane] = names["VGPR"][lane][register].bits

    def lanes(self, instruction: Instruction, line: Line, text: str, state: State, out: Expectation) -> None:
        """An instruction that does the same in every enabled lane."""
        destination, *sources = line.operands
        mask = sources.pop(0) if writes_mask(line) else None
        carry = sources.pop() if reads_mask(line) else None
        is_compare, encoding = destination.file == "s", instruction.encoding
        exec_mask, carries = state.pair(EXEC), 0
        for lane in range(LANES):
            is_masked = modifiers.is_dpp(line) and not modifiers.dpp_writes(line, lane, exec_mask)
            if not exec_mask >> lane & 1 or is_masked:
                continue
            names = self.names(line, state)
            names["laneId"] = Int(lane)
            names["OPSEL"] = Int(modifiers.op_sel_bits(line, encoding), 4, True)
            names["VCC"] = Cell(state.pair(carry.first if carry else VCC), 64)
            for at, operand in enumerate(sources):
                width = 32 * max(operand.count, 1 + (operand.file != "v"))
                bits = lane_source(line, operand, at, lane, state)
                names[f"S{at}"] = Cell(modifiers.source(line, operand, at, bits, encoding), width)
                names[f"SRC{at}"] = Int(operand.first)
            names["S"] = [names.get(f"S{at}") for at in range(3)]
            names["in"] = [None] * 3 if "in[i]" in text else None
            names["SIMM32"] = names.get("SIMM32", Int(0x40490FDB, 32, True))
            if line.mnemonic.startswith("v_fmamk"):
                names["S1"] = names["S2"]
            before = 0 if is_compare else source_bits(destination, state, lane)
            names["D0"] = names["D"] = Cell(before, 64 if is_compare else 32 * destination.count)
            names["D1"], names["VDST"] = Cell(0, 1), Int(destination.first)
            if "VGPR" in text:
                registers = {operand.first: names[f"S{at}"] for at, operand in enumerate(sources)}
                names["VGPR"] = Registers({lane: Registers({**registers, destination.first: names["D0"]})})
            kind = modifiers.kind_of(line.mnemonic)
            try:
                self.evaluate(text, names, "clamp" in line.modifiers and kind not in FORMATS)
            except Unspecified:
                out.vector_known[destination.first : destination.first + destination.count, lane] = 0
                continue
            if is_compare:
                carries |= names["D0"].bits & 1 << lane
                continue
            if modifiers.result_kind(line.mnemonic) in FORMATS:
                modifiers.finish_float(line, names["D0"], modifiers.result_kind(line.mnemonic))
            modifiers.destination(line, names["D0"], before, encoding)
            out.set_vector(destination, lane, names["D0"])
            for at, operand in enumerate(sources):
                if operand.file == "v" and names[f"S{at}"].written:
                    out.set_vector(operand, lane, names[f"S{at}"])
            carries |= carry_out(names, text, lane) << lane
        if is_compare:
            out.state.set_pair(destination.first, carries)
            if "EXEC.u64[laneId] =" in text:
                out.state.set_pair(EXEC, carries)
        elif mask:
            out.state.set_pair(mask.first, carries)


def carry_out(names: dict[str, Any], text: str, lane: int) -> int:
    """The bit that goes to the mask destination."""
    if "D1" in text:
        return names["D1"].bits & 1
    return names["VCC"].bits >> (0 if "VCC = " in text else lane) & 1


def writes_mask(line: Line) -> bool:
    """Whether a lane mask follows the destination."""
    return len(line.operands) > 1 and line.operands[0].file == "v" and (
        "_co_" in line.mnemonic or "div_scale" in line.mnemonic or line.mnemonic.startswith("v_mad_")
    ) and line.operands[1].file == "s" and line.operands[1].count == 2


def reads_mask(line: Line) -> bool:
    """Whether the last source is a lane mask."""
    return any(part in line.mnemonic for part in ("cndmask", "v_addc_co", "v_subb_co", "v_subbrev_co"))


def op_sel_hi(line: Line) -> list[int]:
    """The field's bits; what is not printed is ones, of a mixed-precision instruction zeros."""
    return line.bits("op_sel_hi", "[0,0,0]" if "fma_mix" in line.mnemonic else "[1,1,1]")


def truth_table(line: Line) -> dict[str, Int]:
    """Where the encoding keeps the truth table of `v_bitop3`."""
    table = int(line.modifiers.get("bitop3", "0"), 0)
    return {
        "INST.OMOD": Int(table >> 6, 2, True),
        "INST.ABS": Int(table >> 3 & 7, 3, True),
        "INST.NEG": Int(table & 7, 3, True),
    }


def differences(instruction: Instruction, expectation: Expectation, found: State, before: State) -> list[str]:
    """Where the emulator's state is not the expected one."""
    wanted, lines = expectation.state, []
    for register in np.flatnonzero(wanted.sgpr != found.sgpr):
        lines.append(f"s{register} is {found.sgpr[register]:08x}, expected {wanted.sgpr[register]:08x}")
    if (wanted.scc, wanted.pc) != (found.scc, found.pc):
        lines.append(f"scc, pc are {found.scc, found.pc}, expected {wanted.scc, wanted.pc}")
    unequal = (wanted.vgpr ^ found.vgpr) & expectation.vector_known & ~expectation.vector_loose
    unequal |= loose_differences(expectation, found)
    for register, lane in np.argwhere(unequal):
        sources = " ".join(f"{before.vgpr[at, lane]:08x}" for at in (0, 32, 33, 64, 65, 96, 97))
        lines.append(
            f"v{register} lane {lane} is {found.vgpr[register, lane]:08x}, expected "
            f"{wanted.vgpr[register, lane]:08x}; v0 v32 v33 v64 v65 v96 v97 were {sources}"
        )
    return [f"{instruction.text}: {line}" for line in lines]


def loose_differences(expectation: Expectation, found: State) -> np.ndarray:
    """Bits where a NaN of any payload was due and something else is there."""
    loose, wanted = expectation.vector_loose, expectation.state.vgpr
    # The exponent of the expected NaN, and its quiet bit, must be there in the found one too; the sign is free.
    sign = np.where(loose == 0xFFFF0000, 0x80000000, np.where(loose == 0xFFFF, 0x8000, 0x80000000)).astype(np.uint32)
    required = wanted & loose & ~sign
    halves = (loose == 0xFFFFFFFF) & (required & 0x7FC0 == 0x7FC0) & (required >> 16 == 0)
    return np.where(halves, 0, required & ~found.vgpr)
