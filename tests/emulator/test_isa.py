"""Every mnemonic and every combination of modifiers of isa.toml: decoded as LLVM prints it, and carried out."""

from __future__ import annotations

import pytest

from .agreement import assert_agreement
from .assembly import assembled, code_object, described, disassembled
from .encodings import Instruction, matrix, registers_only
from .expected import Oracle
from .lines import all_lines
from .matrix import products
from .memory import Run, all_of_them, kernel, lanes_of, mismatches
from .rows import BY_HAND, library


def entries(unit: str) -> list[str]:
    """The entries whose line is carried out by the wave or by the machine."""
    return [name for name, line in all_lines().items() if assembled(line).unit == unit]


def test_every_line_decodes_as_llvm_prints_it() -> None:
    """One object file of all lines: the same bytes, the same text."""
    lines = tuple(all_lines().values())
    listed = disassembled(lines)
    assert len(listed) == len(lines)
    wrong = [(described(code).text, text) for code, text in listed if described(code).text != text]
    # LLVM prints a branch's distance as such where there is no symbol.
    assert not wrong


def test_every_opcode_decodes_as_llvm_prints_it() -> None:
    """The text of every opcode that decodes, through LLVM's assembler and disassembler and back."""
    lines = tuple(row.text for row in [*registers_only(), *matrix(), *all_of_them()])
    listed = [text for _, text in disassembled(lines)]
    assert len(listed) > 1000
    assert [(line, text) for line, text in zip(lines, listed, strict=True) if line != text] == []


def test_the_list_is_whole() -> None:
    """Every entry has a line that the emulator carries out."""
    nobody = [name for name, line in all_lines().items() if assembled(line).unit == "nobody"]
    assert not nobody


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """The pseudocode, read once."""
    return Oracle()


@pytest.mark.parametrize("entry", [name for name in entries("wave") if not name.startswith("v_mfma")])
def test_registers(oracle: Oracle, entry: str) -> None:
    """Registers afterwards, modifiers included, are those of the pseudocode."""
    assert_agreement(oracle, assembled(all_lines()[entry]))


def memory_entries() -> list[str]:
    """The entries that access memory, and not the clocks."""
    return [name for name in entries("machine") if assembled(all_lines()[name]).mnemonic not in BY_HAND]


@pytest.fixture(scope="module")
def code() -> bytes:
    """A kernel for each of them."""
    rows = [assembled(all_lines()[name]) for name in memory_entries()]
    return code_object({f"k{at}": kernel(row, lanes_of(row)) for at, row in enumerate(rows)}, 3, lds_bytes=4096)


@pytest.mark.parametrize("entry", memory_entries())
def test_memory(code: bytes, entry: str) -> None:
    """Memory and registers afterwards are those of the pseudocode."""
    instruction: Instruction = assembled(all_lines()[entry])
    run = Run(instruction, code, f"k{memory_entries().index(entry)}", seed=len(entry))
    assert not mismatches(instruction, run, library())


def test_no_entry_is_left_out() -> None:
    """What the two tests above leave to others is in one of the two lists, each with its own test."""
    control = [assembled(all_lines()[name]).mnemonic for name in entries("machine") if name not in memory_entries()]
    matrix = [assembled(all_lines()[name]).mnemonic for name in entries("wave") if name.startswith("v_mfma")]
    assert set(control) <= set(BY_HAND)
    assert set(matrix) <= {product.mnemonic for product in products()}
