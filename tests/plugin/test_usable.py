"""An installation that cannot serve says so, but only to those who ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

import kimi_k3_specdec
from kimi_k3_specdec import kernels
from kimi_k3_specdec.vllm_plugin import usable


@pytest.mark.parametrize(("extra", "asked"), [
    ({}, False), ({"decode_backend": "auto"}, False), ({"decode_backend": "latency_specialized"}, True),
    ({"decode_backend": "latency_specialised"}, True), ("hashable", False), (None, False)])
def test_what_counts_as_asked_for(extra: object, asked: bool) -> None:
    """Any value but vLLM's own decode."""
    assert usable.is_asked_for(SimpleNamespace(additional_config=extra)) is asked


@pytest.mark.parametrize(("version", "is_tested"), [
    ("0.33.0", True), ("0.33.7+rocm711", True), ("0.34.0", False), ("0.3.3", False), ("1.33.0", False)])
def test_versions(version: str, is_tested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tested one, any patch of it."""
    monkeypatch.setattr(metadata, "version", lambda name: version)
    reasons = usable.installation_reasons()
    assert bool(reasons) is not is_tested
    if not is_tested:
        assert reasons[0].startswith(f"vLLM {version} (this release was tested with vLLM 0.33; install")
        with pytest.raises(ValueError, match="cannot run here: vLLM"):
            usable.require()


def test_altered_code_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another build are as good as none."""
    monkeypatch.setattr(metadata, "version", lambda name: "0.33.0")
    own = tmp_path / "kernels"
    shutil.copytree(kernels.PACKAGE, own)
    victim = next(own.glob("*.co"))
    victim.write_bytes(victim.read_bytes() + b"\0")
    for function in (kernels.manifest, kernels.code_object):
        monkeypatch.setitem(function.__kwdefaults__, "package", own)
    (reason,) = usable.installation_reasons()
    assert f"`{victim}` is altered" in reason and "kernels/build.py" in reason


def test_the_plugin_loads_without_its_extension(tmp_path: Path) -> None:
    """vLLM only logs a plug-in that does not: it would go on without a word to the user."""
    package = Path(kimi_k3_specdec.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    found = subprocess.run(
        [sys.executable, "-c", "import kimi_k3_specdec.vllm_plugin as plugin, kimi_k3_specdec.vllm_plugin.usable as u\n"
                               "print(plugin.register, u.installation_reasons())"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "the extension `kimi_k3_specdec._native` does not load" in found
