"""Matrix instructions against a product in double precision, through the recorded operand maps."""

from __future__ import annotations

import numpy as np
import pytest

from .assembly import assembled, encodings_of
from .matrix import FIRST, Product, operand, products, random_registers, results
from .state import EXEC, State, execute

LINES = tuple(product.line() for product in products())


def described(product: Product) -> str:
    """A short name."""
    return f"{product.mnemonic}-{product.a}-{product.b}"


@pytest.mark.parametrize("product", products(), ids=described)
def test_equals_the_product(product: Product) -> None:
    """Every element of D, whatever EXEC says; nothing else is written."""
    code = encodings_of(LINES)[LINES.index(product.line())]
    random = np.random.default_rng(LINES.index(product.line()))
    before = State(np.zeros(128, np.uint32), random_registers(product, random))
    before.set_pair(EXEC, int(random.integers(0, 1 << 63)))
    after = execute(code, before)
    a, b = operand(product, before.vgpr, "a"), operand(product, before.vgpr, "b")
    c = results(product, before.vgpr, "c")
    wanted = np.einsum("nik,njk->nij", a, b) + c
    # Every step of a chain rounds by at most 2**-24 of a partial sum, and no partial sum is larger than all terms.
    terms = np.einsum("nik,njk->nij", np.abs(a), np.abs(b)) + np.abs(c)
    steps = 0 if "_i32_" in product.mnemonic else product.k
    error = np.abs(results(product, after.vgpr, "d") - wanted)
    assert (error <= steps * 2.0**-24 * terms).all(), f"{error.max()} at {np.argwhere(error == error.max())[:4]}"
    untouched = slice(FIRST["d"] + product.result_registers, None)
    assert (before.vgpr[untouched] == after.vgpr[untouched]).all()


def test_a_constant_accumulator_is_in_every_element() -> None:
    """C may be an inline constant."""
    code = assembled("v_mfma_f32_16x16x32_bf16 v[0:3], v[32:35], v[64:67], 1.0").code
    state = State(np.zeros(128, np.uint32), np.zeros((128, 64), np.uint32))
    after = execute(code, state)
    assert (after.vgpr[:4].view(np.float32) == 1.0).all()


def test_the_result_may_overlay_the_accumulator() -> None:
    """D = C, as every loop over K has it."""
    random = np.random.default_rng(5)
    product = next(product for product in products() if product.mnemonic == "v_mfma_f32_16x16x32_bf16")
    before = State(np.zeros(128, np.uint32), random_registers(product, random))
    apart = execute(assembled(product.line()).code, before)
    over = execute(assembled("v_mfma_f32_16x16x32_bf16 v[96:99], v[32:35], v[64:67], v[96:99]").code, before)
    assert (apart.vgpr[0:4] == over.vgpr[96:100]).all()
