"""Memory instructions against AMD's pseudocode: a kernel for every opcode, addresses that lanes do not share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kimi_k3_specdec import _native

from .encodings import Instruction, first_of
from .expected import Registers
from .operands import Line, Operand, parse
from .pseudocode.evaluate import Evaluator
from .pseudocode.library import Library, parsed
from .pseudocode.values import Cell, Int, Memory
from .state import LANES, patterns

# Registers that a kernel loads before and stores after the instruction: address, destination, data, second data.
LOADED = [32, 0, 1, 2, 3, 64, 65, 66, 67, 96, 97, 98, 99]
SCALARS = range(16, 32)
OFFSET, SCALAR_OFFSET = 8, 8
BYTES = 8192
ROW = 64


def local() -> Iterator[Instruction | None]:
    """LDS; two offsets of one and two units, or one of eight bytes."""
    for op in range(256):
        operands = [32 | 64 << 8 | 96 << 16, 32 | 64 << 8, 32]
        for offset in (OFFSET, 0x0201):
            found = first_of("ds", op, iter((0xD8000000 | op << 17 | offset, word) for word in operands))
            is_pair = found is not None and found.mnemonic.startswith(("ds_read2", "ds_write2"))
            yield found if is_pair == (offset != OFFSET) else None


def vector() -> Iterator[Instruction | None]:
    """Global, flat and buffer; atomics with and without their result."""
    for op in range(128):
        for returns in (0, 1):
            base = 0xDC000000 | op << 18 | returns << 16 | OFFSET
            yield first_of("global", op, iter((base | 0x8000, 32 | d << 8 | 4 << 16) for d in (64, 0)))
            yield first_of("flat", op, iter((base, 32 | d << 8 | s << 16) for d in (64, 0) for s in (0, 0x7F)))
            buffer = 0xE0000000 | op << 18 | returns << 14 | 1 << 12 | OFFSET
            yield first_of("mubuf", op, iter([(buffer, 32 | 64 << 8 | 3 << 16 | (128 + SCALAR_OFFSET) << 24)]))


def scalar() -> Iterator[Instruction | None]:
    """Scalar loads at an address that is aligned to four bytes only."""
    for op in range(16):
        for base in (2, 6):
            words = (0xC0000000 | op << 18 | 1 << 17 | 16 << 6 | base, 4 * ROW + 4)
            found = first_of("smem", op, iter([words]))
            is_buffer = found is not None and "s[12:15]" in found.text
            yield found if is_buffer == (base == 6) else None


def all_of_them() -> list[Instruction]:
    """Every memory opcode that decodes, once a form; loads have no second one."""
    found = {row.text: row for part in (local(), vector(), scalar()) for row in part if row}
    plain = {text: row for text, row in found.items() if " sc0" not in text or "atomic" in row.mnemonic}
    return list(plain.values())


def masked(lanes: int) -> list[str]:
    """Enables some lanes."""
    return [f"s_mov_b32 exec_{half}, {lanes >> shift & 0xFFFFFFFF:#x}" for half, shift in (("lo", 0), ("hi", 32))]


def kernel(instruction: Instruction, lanes: int) -> str:
    """The kernel around one instruction: loads its registers, fills LDS, stores registers and LDS."""
    is_local = instruction.encoding == "ds"
    text = [
        "s_load_dwordx4 s[4:7], s[0:1], 0x0",
        "s_load_dwordx2 s[8:9], s[0:1], 0x10",
        "v_lshlrev_b32_e32 v126, 2, v0",
        "v_lshlrev_b32_e32 v127, 6, v0",
        "s_waitcnt lgkmcnt(0)",
        "s_mov_b32 s12, s4",
        "s_and_b32 s13, s5, 0xffff",
        f"s_mov_b32 s14, {BYTES}",
        "s_mov_b32 s15, 0x00020000",
    ]
    text += [f"global_load_dword v{reg}, v126, s[8:9] offset:{256 * at}" for at, reg in enumerate(LOADED)]
    text += ["s_waitcnt vmcnt(0)"]
    if instruction.encoding == "flat":
        text += ["v_mov_b32_e32 v33, s5", "v_add_co_u32_e32 v32, vcc, s4, v32"]
        text += ["v_addc_co_u32_e32 v33, vcc, 0, v33, vcc"]
    chunks = [(f"v[{100 + 4 * at}:{103 + 4 * at}]", 16 * at) for at in range(4)] if is_local else []
    # LDS holds the first 4 KiB of the data buffer.
    text += [f"global_load_dwordx4 {registers}, v127, s[4:5] offset:{at}" for registers, at in chunks]
    text += ["s_waitcnt vmcnt(0)"] + [f"ds_write_b128 v127, {registers} offset:{at}" for registers, at in chunks]
    text += ["s_waitcnt lgkmcnt(0)", *masked(lanes), instruction.text, "s_mov_b64 exec, -1"]
    text += ["s_waitcnt vmcnt(0) lgkmcnt(0)"]
    text += [f"ds_read_b128 {registers}, v127 offset:{at}" for registers, at in chunks] + ["s_waitcnt lgkmcnt(0)"]
    text += [f"global_store_dwordx4 v127, {registers}, s[4:5] offset:{at}" for registers, at in chunks]
    text += [f"global_store_dword v126, v{reg}, s[6:7] offset:{256 * at}" for at, reg in enumerate(LOADED)]
    if instruction.encoding == "smem":
        text += ["s_add_u32 s6, s6, 0x1800", "s_addc_u32 s7, s7, 0"]
        for at, register in enumerate(SCALARS):
            text += [f"v_mov_b32_e32 v1, s{register}", f"global_store_dword v126, v1, s[6:7] offset:{256 * at - 2048}"]
    return "\n".join(text)


def lanes_of(instruction: Instruction) -> int:
    """Lanes enabled: few where offsets reach other lanes' rows."""
    return 0xF if "st64" in instruction.mnemonic else 0x9FFFFFFF7FFFFFF5


class Run:
    """Random memory and registers of one test, and the kernel's answer."""

    def __init__(self, instruction: Instruction, code: bytes, symbol: str, seed: int) -> None:
        """Runs the kernel."""
        random = np.random.default_rng(seed)
        self.data = patterns(random, (BYTES // 4,))
        self.registers = patterns(random, (len(LOADED), LANES))
        self.registers[0] = ROW * np.arange(LANES, dtype=np.uint32)
        # A comparison must succeed in some lanes, whichever operand it is made with.
        addresses = (self.registers[0] + self.displacement(instruction)) // 4 % (BYTES // 4)
        for first in (5, 7, 9):
            for dword in range(2):
                hit = random.integers(0, 3, LANES) == 0
                self.registers[first + dword] = np.where(
                    hit, self.data[(addresses + dword) % len(self.data)], self.registers[first + dword]
                )
        out = bytes(4 * 64 * 64)
        buffers = [self.data.tobytes(), out, self.registers.tobytes()]
        data, out, _ = _native.run_kernel(code, symbol, LANES, buffers)
        self.data_after = np.frombuffer(data, np.uint32)
        words = np.frombuffer(out, np.uint32).reshape(64, LANES)
        self.registers_after, self.scalars_after = words[: len(LOADED)], words[16:32, 0]

    @staticmethod
    def displacement(instruction: Instruction) -> int:
        """What the instruction adds to the address register."""
        return OFFSET + (SCALAR_OFFSET if instruction.encoding == "mubuf" else 0)


def cell_of(run: Run, operand: Operand, lane: int) -> Cell:
    """The registers of an operand in one lane."""
    row = LOADED.index(operand.first)
    bits = sum(int(run.registers[row + at, lane]) << 32 * at for at in range(operand.count))
    return Cell(bits, 32 * operand.count)


def operands_by_role(instruction: Instruction, line: Line) -> tuple[Operand | None, list[Operand]]:
    """(destination, data) of a vector memory or LDS instruction."""
    vectors = [operand for operand in line.operands if operand.file == "v"]
    is_store = "store" in instruction.mnemonic or "write" in instruction.mnemonic
    if instruction.encoding == "mubuf":
        returns = "load" in instruction.mnemonic or "sc0" in line.modifiers
        return (vectors[0] if returns else None), vectors[:1]
    has_result = vectors[0].first == 0 and not is_store
    destination = vectors.pop(0) if has_result else None
    return destination, [operand for operand in vectors if operand.first >= 64]


def text_of(instruction: Instruction, library: Library) -> str:
    """The pseudocode of an instruction, by its name where the opcode is not known."""
    found = library.find(instruction.encoding, instruction.opcode)
    text = found[1] if found else library.lookup(instruction.mnemonic.upper())
    assert text is not None
    return text


def expected(instruction: Instruction, run: Run, library: Library) -> tuple[Memory, dict[tuple[int, int], Cell]]:
    """Memory after the instruction, and the destination cell by (first register, lane)."""
    line = parse(instruction.text)
    raw = run.data.tobytes()
    memory = Memory(dict(enumerate(raw)))
    text, results = text_of(instruction, library), {}
    destination, data = operands_by_role(instruction, line)
    has_address_function = "Calc" in text
    offset = run.displacement(instruction) if "offset0" not in line.modifiers else 0
    for lane in range(LANES):
        if not lanes_of(instruction) >> lane & 1:
            continue
        cells = [cell_of(run, operand, lane) for operand in data]
        base = 0 if any(operand.file == "none" for operand in line.operands) else int(run.registers[0, lane])
        result = cell_of(run, destination, lane) if destination else Cell(0, 128)
        names = {
            "MEM": memory,
            "ADDR": Int(base if has_address_function else base + offset, 32, True),
            "OFFSET": Int(offset, 16, True),
            "OFFSET0": Int(int(line.modifiers.get("offset0", "0")), 8, True),
            "OFFSET1": Int(int(line.modifiers.get("offset1", "0")), 8, True),
            "CalcGlobalAddr": lambda *parts, base=base: Int(base + offset, 64),
            "CalcFlatAddr": lambda *parts, base=base: Int(base + offset, 64),
            "CalcBufferAddr": lambda *parts, base=base: Int(base + offset, 64),
            "RETURN_DATA": result,
            "VDATA": result if "load" in instruction.mnemonic else (cells or [result])[0],
            **{name: Int(0) for name in ("SADDR", "SRSRC", "SOFFSET", "VADDR")},
        }
        # Loads and stores add OFFSET themselves, atomics leave it to the address function.
        adds_itself = "OFFSET.u32" in text or "OFFSET0.u32" in text
        names["CalcDsAddr"] = lambda *parts, base=base: Int(base + (0 if adds_itself else offset), 32)
        for name, cell in zip(("DATA", "DATA2"), cells, strict=False):
            names[name] = cell
        names["DATA0"] = names.get("DATA", result)
        names["VGPR"] = Registers({})
        Evaluator(names, library.lookup).run(parsed(text))
        if destination:
            results[destination.first, lane] = result
    return memory, results


def mismatches(instruction: Instruction, run: Run, library: Library) -> list[str]:
    """Where memory or registers are not as the pseudocode leaves them."""
    if instruction.encoding == "smem":
        return scalar_mismatches(instruction, run, library)
    memory, results = expected(instruction, run, library)
    wanted = np.frombuffer(bytes(memory.contents[at] for at in range(BYTES)), np.uint32)
    limit = 1024 if instruction.encoding == "ds" else BYTES // 4
    unequal = wanted ^ run.data_after
    # Where a NaN of any payload was due, what is there must have all the bits of the default NaN.
    loose = sorted({address // 4 for address in memory.loose})
    unequal[loose] = wanted[loose] & ~run.data_after[loose]
    lines = [
        f"dword {at}: {run.data_after[at]:08x}, expected {wanted[at]:08x}, was {run.data[at]:08x}"
        for at in np.flatnonzero(unequal[:limit])
    ]
    lines += register_mismatches(run, results)
    return [f"{instruction.text}: {line}" for line in lines]


def register_mismatches(run: Run, results: dict[tuple[int, int], Cell]) -> list[str]:
    """Registers that are not as expected; the half that a 16-bit load does not name may be zero or unchanged."""
    lines = []
    for row, register in enumerate(LOADED[1:], 1):
        for lane in range(LANES):
            before, after = int(run.registers[row, lane]), int(run.registers_after[row, lane])
            hits = [(first, cell) for (first, at), cell in results.items() if at == lane and first <= register]
            hits = [(first, cell) for first, cell in hits if register < first + cell.width // 32]
            if not hits:
                wanted, known = before, 0xFFFFFFFF
            else:
                first, cell = hits[0]
                wanted = cell.bits >> 32 * (register - first) & 0xFFFFFFFF
                known = cell.written >> 32 * (register - first) & 0xFFFFFFFF
            rest = after & ~known
            if (after ^ wanted) & known or rest not in (0, before & ~known):
                lines.append(f"v{register} lane {lane} is {after:08x}, expected {wanted:08x}, was {before:08x}")
    return lines


def scalar_mismatches(instruction: Instruction, run: Run, library: Library) -> list[str]:
    """The same for scalar loads."""
    result, offset = Cell(0, 512), parse(instruction.text).operands[-1].first
    names = {"MEM": Memory(dict(enumerate(run.data.tobytes()))), "SDATA": result}
    names |= {name: Int(0) for name in ("SBASE", "SOFFSET", "OFFSET")}
    for function in ("CalcScalarGlobalAddr", "CalcScalarBufferAddr"):
        names[function] = lambda *parts: Int(offset, 64)
    Evaluator(names, library.lookup).run(parsed(text_of(instruction, library)))
    lines = []
    for at, register in enumerate(SCALARS):
        wanted, found = result.bits >> 32 * at & 0xFFFFFFFF, int(run.scalars_after[at])
        if result.written >> 32 * at & 1 and wanted != found:
            lines.append(f"{instruction.text}: s{register} is {found:08x}, expected {wanted:08x}")
    return lines
