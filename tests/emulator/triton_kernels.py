"""Triton kernels, compiled for gfx950 by Triton's own AMD backend. Nothing here knows the emulator."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

NUM_WARPS = 4


@triton.jit
def vector_add(a, b, total, n, BLOCK: tl.constexpr):
    """total = a + b, the last block masked."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(total + i, tl.load(a + i, mask=mask) + tl.load(b + i, mask=mask), mask=mask)


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c [m, n] = a [m, k] @ b [k, n], all edges masked."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * k + inner[None, :],
                       mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + columns[None, :],
                        mask=(inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
    place = c + rows[:, None] * n + columns[None, :]
    tl.store(place, total.to(c.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    """Softmax of each row of n."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * n + i, value / tl.sum(value, axis=0), mask=i < n)


@triton.jit
def layer_norm(x, weight, bias, out, n, eps, BLOCK: tl.constexpr):
    """Layer norm of each row of n."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    mask = i < n
    value = tl.load(x + row * n + i, mask=mask, other=0.0).to(tl.float32)
    centred = tl.where(mask, value - tl.sum(value, axis=0) / n, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    value = centred * scale * tl.load(weight + i, mask=mask) + tl.load(bias + i, mask=mask)
    tl.store(out + row * n + i, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def attention(q, k, v, out, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Causal attention of one head, q, k, v [n, D], with a running maximum; `scale` is for powers of two."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + rows[:, None] * D + columns[None, :], mask=rows[:, None] < n, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    weight, total = tl.zeros((BM,), tl.float32), tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        keys = start + tl.arange(0, BN)
        key = tl.load(k + keys[None, :] * D + columns[:, None], mask=keys[None, :] < n, other=0.0)
        is_seen = (keys[None, :] < n) & (keys[None, :] <= rows[:, None])
        score = tl.where(is_seen, tl.dot(query, key) * scale, -float("inf"))
        new_top = tl.maximum(top, tl.max(score, 1))
        part, decay = tl.exp2(score - new_top[:, None]), tl.exp2(top - new_top)
        value = tl.load(v + keys[:, None] * D + columns[None, :], mask=keys[:, None] < n, other=0.0)
        weight = weight * decay + tl.sum(part, 1)
        total = tl.dot(part.to(value.dtype), value, total * decay[:, None])
        top = new_top
    tl.store(out + rows[:, None] * D + columns[None, :], total / weight[:, None], mask=rows[:, None] < n)


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr):
    """Adds to each value's count."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def scan(x, out, n, BLOCK: tl.constexpr):
    """Running sum of one block."""
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.cumsum(tl.load(x + i, mask=i < n, other=0), 0), mask=i < n)


def compile_kernel(kernel: triton.JITFunction, types: str, **constants: int) -> tuple[bytes, int]:
    """The code object, and the LDS in bytes that its launch has to ask for. `types`: of the arguments, in order."""
    names = kernel.arg_names
    signature = dict(zip(names, types.split(), strict=False)) | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=kernel, signature=signature,
                       constexprs={(names.index(name),): value for name, value in constants.items()})
    compiled = triton.compile(source, target=GPUTarget("hip", "gfx950", 64), options={"num_warps": NUM_WARPS})
    return compiled.asm["hsaco"], compiled.metadata.shared
