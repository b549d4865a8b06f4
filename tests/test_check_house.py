"""`tools/check_house.py`: each rule finds its breach and leaves honest code alone."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "check_house.py"

spec = importlib.util.spec_from_file_location("check_house", SCRIPT)
check_house = importlib.util.module_from_spec(spec)
sys.modules["check_house"] = check_house
spec.loader.exec_module(check_house)


def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> set[tuple[str, int, str]]:
    """(path, line, rule) of every finding in a tree of `files`."""
    monkeypatch.setattr(check_house, "LONG_FILES", {})
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {(found.path, found.line, found.rule) for found in check_house.check_tree(tmp_path, set(files))}


@pytest.mark.parametrize(
    ("name", "text", "line", "rule"),
    [
        ("python/long.py", "x = 1\n" * 401, 401, "length"),
        ("crates/specdec-core/src/utils.rs", "", 1, "name"),
        ("python/common/noun.py", "", 1, "name"),
        ("docs/design.md", "fine\nTODO write it\n", 2, "unfinished"),
        ("tests/test_noun.py", 'OUT = "/tmp/out"\n', 1, "machine-path"),
        ("Makefile", "all:\n\tcp /root/x y\n", 2, "machine-path"),
        ("crates/specdec-core/src/noun.rs", "// SAFETY: none\nunsafe { f() }\n", 2, "unsafe"),
        ("crates/specdec-emu/src/wave.rs", "// SAFETY: none\nunsafe impl Send for A {}\n", 2, "unsafe"),
        ("crates/specdec-hip/src/noun.rs", "let a = 1;\nlet b = unsafe { f() };\n", 2, "safety"),
        (
            "crates/specdec-hip/src/noun.rs",
            "// SAFETY: a's.\nlet a = unsafe { f() };\nlet b = unsafe { g() };",
            3,
            "safety",
        ),
        ("crates/specdec-hip/src/noun.rs", "unsafe impl Send for A {}\n", 1, "safety"),
        ("kernels/stages/router.hpp", "", 1, "stage-test"),
    ],
)
def test_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, line: int, rule: str) -> None:
    """One breach, one finding, at its line."""
    assert rules(tmp_path, monkeypatch, {name: text}) == {(name, line, rule)}


def test_accepts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words where they are right."""
    files = {
        "crates/specdec-hip/src/noun.rs": (
            "// SAFETY: the driver returned it.\nlet a = unsafe { f() };\n"
            "// SAFETY: two lines\n// of reason.\nlet b =\n    unsafe { g() };\n"
            "/// # Safety\n/// `p` is valid.\npub unsafe fn h(p: *const u8) {}\n"
        ),
        "crates/specdec-core/src/noun.rs": '#![forbid(unsafe_code)]\n// no unsafe { } here\nlet s = "unsafe { }";\n',
        "docs/design.md": "see crates/work/x and https://example.org/work/x\n",
        "kernels/stages/router.hpp": "",
        "tests/kernels/test_router.py": "",
        "python/exact.py": "x = 1\n" * 400,
    }
    assert rules(tmp_path, monkeypatch, files) == set()


def test_an_exception_must_still_be_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LONG_FILES names neither short files nor lost ones."""
    (tmp_path / "short.py").write_text("")
    monkeypatch.setattr(check_house, "LONG_FILES", {"short.py": "was long", "lost.py": "was long"})
    messages = [finding.message for finding in check_house.check_tree(tmp_path, {"short.py"})]
    assert messages == ["LONG_FILES names `lost.py`, which is gone", "short again; take it out of LONG_FILES"]


def test_command_line(tmp_path: Path) -> None:
    """It looks at new files that git does not ignore, prints JSON on request, and its status tells."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    for name in ("ignored.py", "seen.py"):
        (tmp_path / name).write_text("# FIXME\n")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--root", str(tmp_path), "--json"], capture_output=True, text=True
    )
    assert done.returncode == 1
    findings = json.loads(done.stdout)
    assert [found["path"] for found in findings if found["rule"] == "unfinished"] == ["seen.py"]
