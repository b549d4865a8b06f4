"""Triton's interpreter, where it differs from the compiler in what vLLM's kernels use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


def install() -> None:
    """Patches the interpreter of this process."""
    _round_to_nearest(interpreter.InterpreterBuilder)
    _follow_aliases()


def _round_to_nearest(builder: Any) -> None:
    """The interpreter cuts fp32 off to bf16; hardware rounds to the nearest even."""
    stock = builder.cast_impl

    def cast(self: Any, source: Any, target: Any) -> Any:
        pair = source.dtype.scalar, target.scalar
        if pair == (tl.float32, tl.bfloat16):
            return interpreter.TensorHandle(bf16_bits(source.data), tl.bfloat16)
        if pair == (tl.bfloat16, tl.float32):
            wide = source.data.astype(np.uint32) << 16
            return interpreter.TensorHandle(wide.view(np.float32), tl.float32)
        return stock(self, source, target)

    builder.cast_impl = cast


def bf16_bits(values: Any) -> Any:
    """uint16 bits of the bf16 nearest to each float32, ties to even, NaN kept."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).reshape(values.shape)


def _follow_aliases() -> None:
    """The interpreter replaces what `triton.language` holds, not what a module of kernels has taken out of it."""
    stock = interpreter._patch_lang

    def patch(function: Callable[..., Any]) -> Any:
        for name, value in list(function.__globals__.items()):
            if getattr(value, "__triton_builtin__", False) and hasattr(tl, getattr(value, "__name__", "")):
                function.__globals__[name] = _late(value.__name__)
        return stock(function)

    interpreter._patch_lang = patch


def _late(name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: getattr(tl, name)(*args, **kwargs)
