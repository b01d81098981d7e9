"""ldmatrix, stmatrix and movmatrix, lane by lane as the PTX ISA words them."""

import numpy as np
import pytest

from kernel_lsp.emulate.matrix import MatrixAccess, MatrixOperation, bind

LANES = 64


def access(opcode: str) -> MatrixAccess:
    found = bind(opcode)
    assert isinstance(found, MatrixAccess)
    return found


def scattered_rows(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shared memory of random bytes, the address each lane names in it, and the matrices there of two warps."""
    rng = np.random.default_rng(count)
    memory = rng.integers(0, 256, 4096, dtype=np.uint8)
    address = (rng.permutation(256)[:LANES] * 16).astype(np.uint64)
    matrices = np.zeros((2, count, 8, 8), np.uint16)
    for warp in range(2):
        for matrix in range(count):
            for row in range(8):
                start = int(address[32 * warp + 8 * matrix + row])
                matrices[warp, matrix, row] = memory[start : start + 16].view(np.uint16)
    return memory, address, matrices


def expected(matrices: np.ndarray, transposed: bool) -> list[np.ndarray]:
    registers: list[np.ndarray] = []
    for matrix in range(matrices.shape[1]):
        register = np.zeros(LANES, np.uint32)
        for lane in range(LANES):
            row, column = lane % 32 // 4, 2 * (lane % 4)
            own = matrices[lane // 32, matrix]
            low, high = (
                (own[column, row], own[column + 1, row]) if transposed else (own[row, column], own[row, column + 1])
            )
            register[lane] = int(low) | int(high) << 16
        registers.append(register)
    return registers


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_rows_are_loaded_into_fragments(count: int, trans: str) -> None:
    load = access(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16")
    memory, address, matrices = scattered_rows(count)
    assert (load.store, load.space, load.width, load.count) == (False, "shared", 16, 1)
    np.testing.assert_array_equal(load.lanes, np.arange(32) < 8 * count)
    addresses = load.addresses(address, None)
    data = memory[addresses[:, :, None].astype(int) + np.arange(16)]
    data[~np.tile(load.lanes, 2)] = 0xEE  # whatever the machine leaves there
    registers = load.registers(data)
    assert len(registers) == count
    for register, right in zip(registers, expected(matrices, bool(trans)), strict=True):
        np.testing.assert_array_equal(register, right)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_what_stmatrix_stores_ldmatrix_loads(count: int, trans: str) -> None:
    memory, address, matrices = scattered_rows(count)
    store = access(f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared::cta.b16")
    assert store.store
    data = store.data(*expected(matrices, bool(trans)))
    for lane in np.flatnonzero(np.tile(store.lanes, 2)):
        start = int(address[lane])
        np.testing.assert_array_equal(data[lane, 0], memory[start : start + 16])


@pytest.mark.parametrize("words", ["x4.m8n8", "x4.trans.m8n8", "m8n8.trans.x4"])
def test_shape_count_and_transposition_stand_in_any_order(words: str) -> None:
    """As DeepGEMM writes `stmatrix.sync.aligned.x2.m8n8.shared.b16`, and ptxas takes it."""
    _, _, matrices = scattered_rows(4)
    usual = access(f"stmatrix.sync.aligned.m8n8.x4{'.trans' if 'trans' in words else ''}.shared.b16")
    registers = expected(matrices, False)
    found = access(f"stmatrix.sync.aligned.{words}.shared.b16")
    np.testing.assert_array_equal(found.data(*registers), usual.data(*registers))


def test_movmatrix_transposes() -> None:
    _, _, matrices = scattered_rows(1)
    operation = bind("movmatrix.sync.aligned.m8n8.trans.b16")
    assert isinstance(operation, MatrixOperation)
    (d,) = operation.run(np.ones(LANES, np.bool_), tuple(expected(matrices, False)))
    np.testing.assert_array_equal(d, expected(matrices, True)[0])


@pytest.mark.parametrize(
    "opcode",
    ["ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8", "ldmatrix.sync.aligned.m8n8.x4.shared::cluster.b16"],
)
def test_newer_forms_have_no_meaning(opcode: str) -> None:
    assert bind(opcode) is None
