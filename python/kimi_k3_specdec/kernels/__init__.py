"""The gfx950 code objects of this package and their manifest, as `kernels/build.py` wrote them.

A package without them, or with others than its manifest names, is refused here with the reason.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from kimi_k3_specdec import _native
from kimi_k3_specdec.errors import UserError

SCHEMA = 1
TARGET = "gfx950"
PACKAGE = Path(__file__).parent
REBUILD = "run `python3 kernels/build.py` in the source tree, or install the wheel again"


class KernelPackageError(UserError):
    """The packaged code objects cannot be used: `what` is wrong, `why` it matters, and a `hint` what to do."""

    def __init__(self, what: str, why: str, hint: str = REBUILD) -> None:
        """The message is `what: why`; the hint stays separate, for the command line to print on its own line."""
        super().__init__(f"{what}: {why}", hint)
        self.what = what
        self.why = why


def manifest(*, abi_hash: str | None = None, package: Path = PACKAGE) -> dict[str, Any]:
    """The manifest, checked against this release's schema, target and ABI (None: what the Rust extension has)."""
    path = package / "manifest.json"
    wanted = {"schema": SCHEMA, "target": TARGET, "abi_hash": abi_hash or _native.build_info()["abi_hash"]}
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise KernelPackageError(f"`{path}` is missing", "no code object was built or installed") from error
    except ValueError as error:
        raise KernelPackageError(f"`{path}` is altered", f"it is no JSON ({error})") from error
    for key, value in wanted.items():
        other = found.get(key) if isinstance(found, dict) else None
        if other != value:
            raise KernelPackageError(f"`{path}` is foreign", f"its {key} is `{other}`, this release needs `{value}`")
    return found


def code_object(name: str, *, abi_hash: str | None = None, package: Path = PACKAGE) -> bytes:
    """The bytes of the code object that the manifest lists as `name`, proved to be the ones that were built."""
    objects = {entry["name"]: entry for entry in manifest(abi_hash=abi_hash, package=package)["objects"]}
    if name not in objects:
        built = ", ".join(f"`{known}`" for known in objects) or "none"
        raise KernelPackageError(f"there is no code object `{name}`", f"this package has {built}")
    path = package / objects[name]["file"]
    try:
        image = path.read_bytes()
    except FileNotFoundError as error:
        raise KernelPackageError(f"`{path}` is missing", "the manifest lists it") from error
    found, wanted = hashlib.sha256(image).hexdigest(), objects[name]["sha256"]
    if found != wanted:
        raise KernelPackageError(f"`{path}` is altered", f"its sha256 is {found}, the manifest has {wanted}")
    return image
