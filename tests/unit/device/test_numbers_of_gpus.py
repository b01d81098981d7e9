"""No GPU's number stands outside the table of `kernel_lsp/device`: what is written down for one is wrong on another."""

import ast
import operator
import re
from collections.abc import Iterator
from pathlib import Path

from kernel_lsp.device import architectures
from kernel_lsp.device.architectures import ARCHITECTURES
from kernel_lsp.device.device import DEVICES

PACKAGE = Path(architectures.__file__).parents[1]
TABLE = {"architectures.py", "device.py"}
# Everyday numbers that a GPU has as well, and that tell nothing; one of 2,000 MHz must not forbid all thousands.
EVERYDAY = {2**power for power in range(11)} | {2**power for power in range(16, 40)} | set(range(65)) | {72}
EVERYDAY |= {1000 * count for count in range(1, 11)}
MAY_STAND = {
    ("compiler/machine_code/cubin.py", 76): "an attribute of a cubin",
    ("emulate/matrix/accumulate.py", 132): "an exponent",
    ("rules/correctness.py", 2048): "an example of a block that is too large",
    ("runner/workers/fused.py", 2048): "blocks of our own kernel, on any GPU",
    ("runner/workers/replay.py", 48 << 10): "a program by itself, which imports nothing of ours",
    ("runner/workers/inline.py", 76): "a number of CUDA's for a property",
}
FOLDED = {ast.Mult: operator.mul, ast.LShift: operator.lshift, ast.Add: operator.add, ast.Sub: operator.sub}


def numbers_of_gpus() -> set[int]:
    """What sets GPUs apart: multiprocessors, threads and shared memory of one (bytes), caches, clocks, bandwidth."""
    found: set[int] = {architectures.STATIC_SHARED_BYTES}
    for limits in ARCHITECTURES.values():
        found |= {limits.threads, limits.shared_bytes, limits.block_shared_bytes}
    for device in DEVICES:
        found |= {device.multiprocessors, device.l2_bytes, device.memory_bytes, device.bandwidth, device.clock_mhz}
    return found - EVERYDAY


def value_of(node: ast.AST) -> int | None:
    """The value of a whole number, spelt out or as a product, shift or sum of such."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in FOLDED:
        left, right = value_of(node.left), value_of(node.right)
        if left is not None and right is not None and 0 <= right < 1 << 20:
            return FOLDED[type(node.op)](left, right)
    return None


def written(text: str) -> Iterator[int]:
    """Every whole number in a Python text: in its code, and in texts that it may write into a user's file."""
    tree = ast.parse(text)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (value := value_of(node)) is not None:
            yield value
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield from (int(number) for number in re.findall(r"(?<![\w.])(\d+)[uUlL]*(?!\w|\.\d)", node.value))


def test_no_number_of_a_gpu_stands_outside_the_table():
    forbidden = numbers_of_gpus()
    found = {
        (str(path.relative_to(PACKAGE)), number)
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "device" or path.name not in TABLE
        for number in written(path.read_text())
        if number in forbidden
    }
    assert found - set(MAY_STAND) == set()
    assert set(MAY_STAND) - found == set(), "these need no leave any more"


def test_the_search_for_numbers_finds_them_however_they_are_written():
    for text in ("A = 48 * 1024", "A = 0xC000", "A = f(48 << 10)", "A = 49_152", 'A = f"min({x}, {y} * 49152LL)"'):
        assert 48 << 10 in set(written(text)), text
    assert 132 not in set(written('"""Of 132 multiprocessors."""'))
    assert {132, 108, 128 + 14, 2048, 1536, 48 << 10, 227 << 10} <= numbers_of_gpus()
