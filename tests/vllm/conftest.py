"""The checkpoint, once for all engines."""

from __future__ import annotations

import pytest
from rig import Rig


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """One for all."""
    return Rig(tmp_path_factory.mktemp("vllm"))
