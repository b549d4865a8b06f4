#!/usr/bin/env python3
"""Checks the house rules that no linter knows, over the files that git tracks or would track.

Exit status: 0 clean, 1 findings, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

MAX_LINES = 400
SOURCES = {".rs", ".py", ".pyi", ".hip", ".hpp", ".toml", ".md", ".sh", ""}
GENERATED = re.compile(r"Cargo\.lock|.*_generated\.(hpp|py)")
# Longer than MAX_LINES, each with the reason why splitting it would make it worse.
LONG_FILES: dict[str, str] = {}

FORBIDDEN_NAMES = {"utils", "util", "common", "misc", "helpers", "helper", "old", "archive", "v2"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}~])/(work|root|tmp|home)/\w")
# Where the words and paths that the other files may not hold are the subject.
SELF = {"tools/check_house.py", "tests/test_check_house.py"}

UNSAFE = re.compile(r"\bunsafe\s*(\{|fn\b|impl\b|extern\b|trait\b)")
UNSAFE_NEEDS_SAFETY = re.compile(r"\bunsafe\s*(\{|impl\b)")
UNSAFE_ALLOWED = (
    "crates/specdec-hip/",
    "crates/specdec-emu/src/machine/memory.rs",
    "crates/specdec-emu/src/machine/segment.rs",
    "crates/specdec-py/",
    "crates/fake-hip/",
)
RUST_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//.*')


@dataclass(frozen=True)
class Finding:
    """One breach: where it is, which rule, and what to do."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        """As compilers print it, so that editors can jump there."""
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def check_name(path: PurePosixPath) -> Iterator[Finding]:
    """A file or folder is named for the noun it holds."""
    for part in (*path.parts[:-1], path.stem):
        if part.lower() in FORBIDDEN_NAMES:
            yield Finding(str(path), 1, "name", f"`{part}` names no noun; name it for what it holds")


def check_length(path: PurePosixPath, lines: list[str]) -> Iterator[Finding]:
    """A hand-written file stays short; an exception that is no longer needed goes too."""
    allowed = str(path) in LONG_FILES
    if len(lines) > MAX_LINES and not allowed:
        yield Finding(str(path), MAX_LINES + 1, "length", f"{len(lines)} lines, at most {MAX_LINES}; split it")
    if len(lines) <= MAX_LINES and allowed:
        yield Finding(str(path), 1, "length", "short again; take it out of LONG_FILES")


def check_words(path: PurePosixPath, lines: list[str]) -> Iterator[Finding]:
    """Nothing unfinished, and no path of the machine that the file was written on."""
    for number, line in enumerate(lines, 1):
        if found := UNFINISHED.search(line):
            yield Finding(str(path), number, "unfinished", f"`{found[0]}`: do it, or file an issue")
        if found := MACHINE_PATH.search(line):
            yield Finding(str(path), number, "machine-path", f"`{found[0]}...` exists on one machine only")


def check_unsafe(path: PurePosixPath, lines: list[str]) -> Iterator[Finding]:
    """`unsafe` lives in the modules made for it, each block and impl under a SAFETY line."""
    for number, line in enumerate(lines, 1):
        code = RUST_STRING_OR_COMMENT.sub("", line)
        if UNSAFE.search(code) and not str(path).startswith(UNSAFE_ALLOWED):
            yield Finding(str(path), number, "unsafe", f"only in {', '.join(UNSAFE_ALLOWED)}")
        if UNSAFE_NEEDS_SAFETY.search(code) and not has_safety_line(lines[: number - 1]):
            yield Finding(
                str(path), number, "safety", "put the fact and who guarantees it in a `// SAFETY:` line above"
            )


def has_safety_line(above: list[str]) -> bool:
    """Whether the statement's lines and comment `above` an unsafe block hold a SAFETY line."""
    for line in reversed(above):
        text = line.strip()
        if "SAFETY:" in text:
            return True
        # A finished statement or an open brace ends the search: its comment speaks of something else.
        if not text.startswith("//") and (not text or text.endswith((";", "{", "}"))):
            return False
    return False


def check_stage_tests(paths: set[str]) -> Iterator[Finding]:
    """Each kernel stage has the test that bears its name."""
    for path in sorted(map(PurePosixPath, paths)):
        if path.parent == PurePosixPath("kernels/stages") and path.suffix == ".hpp":
            test = f"tests/kernels/test_{path.stem}.py"
            if test not in paths:
                yield Finding(str(path), 1, "stage-test", f"`{test}` is missing")


def check_tree(root: Path, paths: set[str]) -> list[Finding]:
    """Every breach among `paths`, which are relative to `root`."""
    findings = list(check_stage_tests(paths))
    findings += [
        Finding("tools/check_house.py", 1, "length", f"LONG_FILES names `{path}`, which is gone")
        for path in LONG_FILES
        if path not in paths
    ]
    for path in map(PurePosixPath, sorted(paths)):
        findings += check_name(path)
        if path.suffix not in SOURCES or GENERATED.fullmatch(path.name):
            continue
        lines = (root / path).read_text(encoding="utf-8").splitlines()
        findings += check_length(path, lines)
        if str(path) not in SELF:
            findings += check_words(path, lines)
        if path.suffix == ".rs":
            findings += check_unsafe(path, lines)
    return findings


def listed_by_git(root: Path) -> set[str]:
    """Tracked files and new ones that git does not ignore: what the next commit could hold."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return {name for name in names if name and (root / name).is_file()}


def main(arguments: list[str] | None = None) -> int:
    """Prints the findings; returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools/check_house.py", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON on stdout")
    options = parser.parse_args(arguments)
    findings = check_tree(options.root, listed_by_git(options.root))
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
