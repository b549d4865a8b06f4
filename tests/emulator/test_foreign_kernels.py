"""Code objects of other people: Triton's, compiled by its own backend, and plain HIP C++, against torch."""

from __future__ import annotations

import importlib.util
import shutil

import pytest
import torch

from kimi_k3_specdec.emulator import Machine

from . import hip_kernels
from .compiled import CLANG, compile_hip
from .guest import empty, launch, put

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None,
                                  reason="Triton is not installed; PyPI's torch brings it on Linux")
needs_clang = pytest.mark.skipif(shutil.which(CLANG) is None, reason=f"no {CLANG}")
BF16, F32 = torch.bfloat16, torch.float32


@pytest.fixture(scope="module")
def triton_kernels(tmp_path_factory):
    """Triton's kernels and compiler, its cache in a folder of the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        # Triton 3.9 warns until one is chosen; fused or not is inside every tolerance here.
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
        from . import triton_kernels

        yield triton_kernels


@pytest.fixture(params=[0, 1], ids=["seed0", "seed1"])
def machine(request) -> Machine:
    """Two orders of waves."""
    return Machine(schedule_seed=request.param)


def random(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """Normal numbers, the same at every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[0]), dtype=F32).to(dtype)


def assert_close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Within `tolerance` of the largest expected value."""
    assert expected.abs().max() > 0
    error = (found.double() - expected).abs().max() / expected.abs().max()
    assert error <= tolerance, f"{error:.2e} > {tolerance:.2e}"


@needs_triton
def test_triton_vector_add(triton_kernels, machine: Machine) -> None:
    """Exact, nothing behind the end."""
    a, b = random(1000), random(1001)[1:]
    code_object, lds = triton_kernels.compile_kernel(triton_kernels.vector_add, "*fp32 *fp32 *fp32 i32", BLOCK=256)
    total = put(machine, "total", torch.full((1024,), 7.0))
    launch(machine, code_object, 4, 256, put(machine, "a", a), put(machine, "b", b), total, 1000, dynamic_lds=lds)
    assert torch.equal(total.read(), torch.cat([a + b, torch.full((24,), 7.0)]))


@needs_triton
@pytest.mark.parametrize(
    ("types", "dtype", "tolerance"),
    [
        # Products of bf16 and f16 are exact in f32, their sum of k terms is within k * 2**-24 of the sum of their
        # sizes; the result's rounding to bf16 (2**-8) or f16 (2**-11) is far more.
        ("*bf16 *bf16 *bf16", BF16, 2**-8),
        ("*fp16 *fp16 *fp16", torch.float16, 2**-10),
        ("*bf16 *bf16 *fp32", BF16, 1e-5),
        ("*fp32 *fp32 *fp32", F32, 1e-5),
        ("*fp8e4nv *fp8e4nv *fp32", torch.float8_e4m3fn, 1e-5),
        ("*fp8e5 *fp8e5 *fp32", torch.float8_e5m2, 1e-5),
    ],
    ids=["bf16", "f16", "bf16_f32", "f32", "fp8", "bf8"],
)
def test_triton_matmul(triton_kernels, machine: Machine, types: str, dtype: torch.dtype, tolerance: float) -> None:
    """Matrix instructions and transposing LDS reads; no size is a multiple of its tile."""
    m, n, k = 100, 72, 200
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
    out = {"*bf16": BF16, "*fp16": torch.float16, "*fp32": F32}[types.split()[-1]]
    code_object, lds = triton_kernels.compile_kernel(
        triton_kernels.matmul, f"{types} i32 i32 i32", BM=64, BN=32, BK=64)
    c = empty(machine, "c", (m, n), out)
    launch(machine, code_object, (2, 3), 256, put(machine, "a", a), put(machine, "b", b), c, m, n, k, dynamic_lds=lds)
    assert_close(c.read(), a.double() @ b.double(), tolerance)
    assert machine.statistics()["mfma"] > 0


@needs_triton
@pytest.mark.parametrize(("types", "dtype"), [("*fp32", F32), ("*bf16", BF16)], ids=["f32", "bf16"])
def test_triton_softmax(triton_kernels, machine: Machine, types: str, dtype: torch.dtype) -> None:
    """A maximum and a sum over four waves, exponentials, divisions."""
    x = (random(5, 777) * 4).to(dtype)
    code_object, lds = triton_kernels.compile_kernel(triton_kernels.softmax, f"{types} *fp32 i32", BLOCK=1024)
    out = empty(machine, "out", (5, 777), F32)
    launch(machine, code_object, 5, 256, put(machine, "x", x), out, 777, dynamic_lds=lds)
    # An exponent of up to 32 is rounded to 2**-19; with the sums 1e-5 of the value covers it.
    torch.testing.assert_close(out.read().double(), x.double().softmax(-1), rtol=1e-5, atol=1e-10)


@needs_triton
def test_triton_layer_norm(triton_kernels, machine: Machine) -> None:
    """Masked reductions, a square root, bf16 in and out."""
    x, weight, bias = random(3, 600).to(BF16) + 3, random(600), random(601)[:600]
    code_object, lds = triton_kernels.compile_kernel(
        triton_kernels.layer_norm, "*bf16 *fp32 *fp32 *bf16 i32 fp32", BLOCK=1024)
    out = empty(machine, "out", (3, 600), BF16)
    launch(machine, code_object, 3, 256, put(machine, "x", x), put(machine, "weight", weight),
           put(machine, "bias", bias), out, 600, 1e-5, dynamic_lds=lds)
    expected = torch.nn.functional.layer_norm(x.double(), (600,), weight.double(), bias.double(), 1e-5)
    # One rounding to bf16 is at most 2**-8 of the value; near zero f32 arithmetic on values of a few units adds 1e-5.
    torch.testing.assert_close(out.read().double(), expected, rtol=1.01 * 2**-8, atol=1e-5)


@needs_triton
def test_triton_attention(triton_kernels, machine: Machine) -> None:
    """Two matrix products a step with a running softmax between them, causal, the last blocks ragged."""
    n, d = 100, 64
    q, k, v = (random(n + i, d, dtype=BF16)[:n] for i in range(3))
    code_object, lds = triton_kernels.compile_kernel(
        triton_kernels.attention, "*bf16 *bf16 *bf16 *fp32 i32 fp32", BM=64, BN=32, D=d)
    out = empty(machine, "out", (n, d), F32)
    launch(machine, code_object, 2, 256, *(put(machine, name, x) for name, x in (("q", q), ("k", k), ("v", v))), out,
           n, 1.4426950408889634 / 8, dynamic_lds=lds)
    score = (q.double() @ k.double().T / 8).masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
    # Weights are rounded to bf16 (2**-8) before the second product.
    assert_close(out.read(), score.softmax(-1) @ v.double(), 2**-8)


@needs_triton
def test_triton_histogram_and_scan(triton_kernels, machine: Machine) -> None:
    """Global atomics, and a running sum across lanes and waves; integers, so both are exact."""
    values = torch.randint(0, 50, (3000,), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    x = put(machine, "x", values)
    code_object, lds = triton_kernels.compile_kernel(triton_kernels.histogram, "*i32 *i32 i32", BLOCK=256)
    counts = put(machine, "counts", torch.zeros(50, dtype=torch.int32))
    launch(machine, code_object, 12, 256, x, counts, 3000, dynamic_lds=lds)
    assert torch.equal(counts.read(), values.bincount(minlength=50).int())
    code_object, lds = triton_kernels.compile_kernel(triton_kernels.scan, "*i32 *i32 i32", BLOCK=1024)
    out = empty(machine, "out", (1000,), torch.int32)
    launch(machine, code_object, 1, 256, x, out, 1000, dynamic_lds=lds)
    assert torch.equal(out.read(), values[:1000].cumsum(0).int())


@needs_clang
def test_hip_tiled_matmul(machine: Machine) -> None:
    """Static LDS, barriers, a two-dimensional grid with ragged edges."""
    m, n, k = 50, 37, 45
    a, b = random(m, k), random(k, n)
    c = empty(machine, "c", (m, n), F32)
    launch(machine, compile_hip(hip_kernels.MATMUL), (3, 4), (16, 16), put(machine, "a", a), put(machine, "b", b), c,
           m, n, k)
    # k products and sums in f32.
    assert_close(c.read(), a.double() @ b.double(), 45 * 2**-24)


@needs_clang
def test_hip_histogram(machine: Machine) -> None:
    """LDS and global atomics; the grid's size comes from the dispatch packet."""
    data = torch.randint(0, 256, (10_007,), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    counts = put(machine, "counts", torch.zeros(256, dtype=torch.int32))
    launch(machine, compile_hip(hip_kernels.HISTOGRAM), 5, 256, put(machine, "bytes", data), counts, len(data))
    assert torch.equal(counts.read(), data.int().bincount(minlength=256).int())


@needs_clang
def test_hip_scan_with_look_back(machine: Machine) -> None:
    """Workgroups that wait for each other, 64-bit sums."""
    n = 256 * 40 - 100
    values = torch.randint(-(2**31), 2**31 - 1, (n,), generator=torch.Generator().manual_seed(3), dtype=torch.int32)
    sums = empty(machine, "sums", (n,), torch.int64)
    totals = put(machine, "totals", torch.zeros(40, dtype=torch.int64))
    launch(machine, compile_hip(hip_kernels.SCAN), 40, 256, put(machine, "values", values), sums, totals, n)
    assert torch.equal(sums.read(), values.long().cumsum(0))


@needs_clang
def test_hip_dot(machine: Machine) -> None:
    """Cross-lane exchange and an atomic float; products of small integers, so every order of the sum is exact."""
    a, b = (torch.randint(-50, 50, (3000,), generator=torch.Generator().manual_seed(seed)).float() for seed in (5, 6))
    total = put(machine, "total", torch.zeros(1))
    launch(machine, compile_hip(hip_kernels.DOT), 3, 256, put(machine, "a", a), put(machine, "b", b), total, 3000)
    assert total.read().item() == (a * b).sum().item() != 0


@needs_clang
def test_hip_numbers(machine: Machine) -> None:
    """Division of 32 and 64 bits, and loops that every lane leaves at its own time."""
    n = 500
    generator = torch.Generator().manual_seed(4)
    a = torch.randint(0, 2**63 - 1, (n,), generator=generator, dtype=torch.int64)
    b = torch.randint(1, 2**31 - 1, (n,), generator=generator, dtype=torch.int32) >> torch.arange(n) % 20
    b = b.clamp(min=1).int()
    quotients, remainders, steps = (empty(machine, name, (n,), dtype) for name, dtype in (
        ("quotients", torch.int64), ("remainders", torch.int32), ("steps", torch.int32)))
    launch(machine, compile_hip(hip_kernels.NUMBERS), 2, 256, put(machine, "a", a), put(machine, "b", b), quotients,
           remainders, steps, n)
    assert torch.equal(quotients.read(), a // b.long())
    assert torch.equal(remainders.read(), torch.fmod(-(b >> 1), torch.arange(1, n + 1, dtype=torch.int32)))
    assert steps.read().tolist() == [collatz(i) for i in range(1, n + 1)]


def collatz(value: int) -> int:
    """Steps to 1."""
    count = 0
    while value != 1:
        value = 3 * value + 1 if value % 2 else value // 2
        count += 1
    return count
