"""Device facts through AMD's hip-python: whether this is the machine that the suite is for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

DEVICES, UNITS, LDS_BYTES, WAVE = 8, 256, 163_840, 64
NAMES = ("MI355", "MI350", "gfx950")
"""A device's name has one of them."""


@dataclass(frozen=True)
class Device:
    """What one device says of itself."""

    name: str
    units: int
    lds_bytes: int
    wave: int
    pci: str


def answer(call: Any) -> Any:
    """A call's value; hip-python gives the status first. Raises RuntimeError with HIP's name of it."""
    status, *values = call
    if int(status) != 0:
        raise RuntimeError(f"HIP says {status.name}")
    return values[0] if len(values) == 1 else None


def devices(hip: Any) -> list[Device]:
    """Every device, by number. `hip`: the module of hip-python."""
    attribute = hip.hipDeviceAttribute_t
    return [
        Device(name=_text(answer(hip.hipDeviceGetName(64, number))),
               units=answer(hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeMultiprocessorCount, number)),
               lds_bytes=answer(hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeMaxSharedMemoryPerBlock, number)),
               wave=answer(hip.hipDeviceGetAttribute(attribute.hipDeviceAttributeWarpSize, number)),
               pci=_text(answer(hip.hipDeviceGetPCIBusId(16, number))))
        for number in range(answer(hip.hipGetDeviceCount()))]


def _text(value: Any) -> str:
    """hip-python gives names as bytes or as objects that print them."""
    return (value.decode() if isinstance(value, bytes) else str(value)).rstrip("\0")


def why_not(hip: Any) -> list[str]:
    """Everything that keeps this machine from being eight whole MI355X that reach each other; empty: it is one."""
    found = devices(hip)
    reasons = [] if len(found) == DEVICES else [f"{len(found)} devices ({DEVICES} needed)"]
    for number, device in enumerate(found):
        if not any(name in device.name for name in NAMES):
            reasons.append(f"device {number} is `{device.name}` (an MI355X needed)")
        for what, has, needed in (("CUs", device.units, UNITS), ("bytes of LDS", device.lds_bytes, LDS_BYTES),
                                  ("lanes a wave", device.wave, WAVE)):
            if has != needed:
                reasons.append(f"device {number} has {has} {what} ({needed} needed; is the GPU partitioned?)")
    reasons += [f"device {user} does not reach device {owner}"
                for user, owner in permutations(range(len(found)), 2)
                if not answer(hip.hipDeviceCanAccessPeer(user, owner))]
    return reasons
