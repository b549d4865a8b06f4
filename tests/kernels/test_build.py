"""`kernels/build.py` and the package that serves what it built, on kernels of a few lines."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kimi_k3_specdec import kernels

BUILD = Path(__file__).resolve().parents[2] / "kernels" / "build.py"

HEADER = """
#define SPECDEC_ABI_HASH 0x1234abcd
#define KERNEL extern "C" __attribute__((global))
using GlobalInt = int __attribute__((address_space(1)));
"""
COPY = """
#include "specdec/abi_generated.hpp"
KERNEL void copy(const int* from, int* to) {
  to[__builtin_amdgcn_workitem_id_x()] = from[SPECDEC_RANKS];
}
"""
FLAT = """
#include "specdec/abi_generated.hpp"
struct Table { int* entry; };
KERNEL void through_table(const Table* table) { *table->entry = 1; }
"""
# More values live across the barrier than a 1024-lane workgroup's 128 registers a lane hold.
SPILL = """
#include "specdec/abi_generated.hpp"
KERNEL __attribute__((amdgpu_flat_work_group_size(1024, 1024))) void crowded(const int* from, int* to) {
  int kept[200];
  _Pragma("unroll") for (int i = 0; i < 200; ++i) kept[i] = from[i * 1024 + __builtin_amdgcn_workitem_id_x()];
  asm volatile("s_barrier" ::: "memory");
  _Pragma("unroll") for (int i = 0; i < 200; ++i) to[i * 1024 + __builtin_amdgcn_workitem_id_x()] = kept[199 - i];
}
"""
SCRATCH = """
#include "specdec/abi_generated.hpp"
KERNEL void indexed(const int* from, int* to) {
  volatile int kept[64];
  for (int i = 0; i < 64; ++i) kept[i] = from[i];
  to[0] = kept[from[64] & 63];
}
"""
HEAVY = """
#include "specdec/abi_generated.hpp"
__attribute__((shared)) int lds[41000];
KERNEL void heavy(int* to, int index) { lds[index] = 1; to[0] = lds[index + 1]; }
"""


class Tree:
    """A kernel tree of one source and one row, and where its code object goes."""

    def __init__(self, root: Path, source: str) -> None:
        """Writes the tree under `root`."""
        self.kernels = root / "kernels"
        self.out = root / "out"
        (self.kernels / "include" / "specdec").mkdir(parents=True)
        (self.kernels / "include" / "specdec" / "abi_generated.hpp").write_text(HEADER)
        self.source = self.kernels / "one.hip"
        self.source.write_text(source)
        (self.kernels / "builds.toml").write_text(
            '[[build]]\nname = "one"\nsource = "one.hip"\ngeometry = "nano"\nranks = 2\n'
        )

    def build(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """One run of the script, as a person would start it."""
        command = [sys.executable, str(BUILD), "--kernels", str(self.kernels), "--out", str(self.out), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)

    def built(self, *arguments: str) -> dict:
        """The printed manifest of a run that has to succeed."""
        done = self.build("--json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def files(self) -> dict[str, bytes]:
        """What the output directory holds."""
        return {path.name: path.read_bytes() for path in self.out.iterdir()}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree whose kernel is fit to ship."""
    return Tree(tmp_path / "first", COPY)


def test_manifest_describes_the_kernel(tree: Tree) -> None:
    """Registers, memory and the kernarg layout come from the object itself."""
    manifest = tree.built()
    assert (manifest["target"], manifest["abi_hash"]) == ("gfx950", "0x1234abcd")
    (entry,) = manifest["objects"]
    assert (entry["geometry"], entry["ranks"]) == ("nano", 2)
    (symbol,) = entry["symbols"]
    assert (symbol["name"], symbol["wave_size"], symbol["lds_bytes"]) == ("copy", 64, 0)
    assert symbol["spills"] == {"vgpr": 0, "sgpr": 0}
    assert symbol["kernarg_bytes"] == 16
    assert [(argument["offset"], argument["bytes"]) for argument in symbol["kernarg_layout"]] == [(0, 8), (8, 8)]
    # Two pointers in one load, a value, a store, the waits between them and the end: a handful, no padding counted.
    assert 5 <= symbol["instructions"] <= 20


def test_same_bytes_in_any_checkout(tree: Tree, tmp_path: Path) -> None:
    """The object and the manifest do not depend on where the sources lie, the debug lines included."""
    other = Tree(tmp_path / "a much longer path" / "second", COPY)
    tree.built()
    other.built()
    assert tree.files() == other.files()
    assert str(tmp_path).encode() not in b"".join(tree.files().values())


def test_rebuilds_only_what_changed(tree: Tree) -> None:
    """A second run compiles nothing and touches nothing; a source, a flag or a lost file does."""
    assert tree.built()["built"] == ["one"]
    before = {path.name: path.stat().st_mtime_ns for path in tree.out.iterdir()}
    again = tree.built()
    assert (again["built"], again["cached"]) == ([], ["one"])
    assert {path.name: path.stat().st_mtime_ns for path in tree.out.iterdir()} == before
    assert tree.built("--force")["built"] == ["one"]
    (tree.out / "one.co").write_bytes(b"altered")
    assert tree.built()["built"] == ["one"]
    tree.source.write_text(COPY.replace("SPECDEC_RANKS", "SPECDEC_RANKS + 1"))
    assert tree.built()["built"] == ["one"]


def test_objects_of_removed_rows_go(tree: Tree) -> None:
    """The package never holds an object that the manifest does not list."""
    tree.built()
    table = tree.kernels / "builds.toml"
    table.write_text(table.read_text().replace('"one"', '"renamed"'))
    tree.built()
    assert sorted(tree.files()) == ["manifest.json", "renamed.co"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (SPILL, "VGPR spills"),
        (SCRATCH, "bytes of private segment"),
        (HEAVY, "local memory (164000) exceeds limit (163840)"),
        (FLAT, "`flat_store_dword` at 0x"),
    ],
)
def test_unfit_kernels_fail_the_build(tree: Tree, source: str, reason: str) -> None:
    """Spills, scratch, too much LDS and flat accesses: exit 1 with the reason, and the last good build stays."""
    tree.built()
    before = tree.files()
    tree.source.write_text(source)
    done = tree.build()
    assert done.returncode == 1
    assert reason in done.stderr
    assert "error: `one` " in done.stderr
    assert "hint: " in done.stderr
    assert tree.files() == before


def test_a_refused_instruction_names_its_source_line(tree: Tree) -> None:
    """The line is the one that a person can open, not the object's offset alone."""
    tree.source.write_text(FLAT)
    assert "from kernels/one.hip:4:" in tree.build().stderr


def test_a_warning_fails_the_build(tree: Tree) -> None:
    """-Werror: the compiler's message is shown, nothing is left behind."""
    tree.source.write_text(COPY.replace("{", "{ int unused;", 1))
    done = tree.build()
    assert done.returncode == 1
    assert "unused variable" in done.stderr
    assert list(tree.out.iterdir()) == []


def test_missing_clang_is_one_clear_line(tree: Tree) -> None:
    """What, why and what to do; a current build needs no compiler."""
    done = tree.build(SPECDEC_CLANG="/nowhere/clang")
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: no compiler for the gfx950 kernels: looked for `/nowhere/clang`")
    assert hint.startswith("hint: `apt-get install clang-22 lld-22 llvm-22`")
    tree.built()
    assert tree.build(SPECDEC_CLANG="/nowhere/clang").returncode == 0


def test_unknown_name_is_refused(tree: Tree) -> None:
    """--only with a name that the table lacks lists those it has."""
    done = tree.build("--only", "two")
    assert done.returncode == 2
    assert "no build is named `two`" in done.stderr
    assert "the table has `one`" in done.stderr


def test_package_serves_what_was_built(tree: Tree) -> None:
    """`code_object` returns the object's bytes when manifest, target, ABI and digest agree."""
    tree.built()
    image = kernels.code_object("one", abi_hash="0x1234abcd", package=tree.out)
    assert image == (tree.out / "one.co").read_bytes()
    assert image[:4] == b"\x7fELF"


def altered(out: Path) -> None:
    """One bit of the object."""
    image = bytearray((out / "one.co").read_bytes())
    image[-1] ^= 1
    (out / "one.co").write_bytes(image)


def edit_manifest(**fields: object) -> object:
    """An edit that sets `fields` of the manifest."""

    def edit(out: Path) -> None:
        path = out / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return edit


@pytest.mark.parametrize(
    ("damage", "what", "why"),
    [
        (altered, "one.co` is altered", "its sha256 is"),
        (lambda out: (out / "one.co").unlink(), "one.co` is missing", "the manifest lists it"),
        (shutil.rmtree, "manifest.json` is missing", "no code object was built"),
        (lambda out: (out / "manifest.json").write_text("{"), "manifest.json` is altered", "it is no JSON"),
        (edit_manifest(target="gfx942"), "manifest.json` is foreign", "its target is `gfx942`"),
        (edit_manifest(schema=0), "manifest.json` is foreign", "its schema is `0`"),
        (edit_manifest(abi_hash="0x1"), "manifest.json` is foreign", "its abi_hash is `0x1`"),
        (edit_manifest(objects=[]), "there is no code object `one`", "this package has none"),
    ],
)
def test_package_refuses_a_damaged_build(tree: Tree, damage, what: str, why: str) -> None:
    """Missing, altered or foreign: what, why and what to do."""
    tree.built()
    damage(tree.out)
    with pytest.raises(kernels.KernelPackageError) as refusal:
        kernels.code_object("one", abi_hash="0x1234abcd", package=tree.out)
    assert what in refusal.value.what
    assert why in refusal.value.why
    assert "kernels/build.py" in refusal.value.hint
