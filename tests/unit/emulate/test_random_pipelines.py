"""Random pipelines of Hopper on the emulator: they are right, and their products are those of the matrices."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kernel_lsp.compiler.fakes import driver as driver_stub
from kernel_lsp.emulate.matrix.formats import values
from tests.bench import driver_maps, random_pipelines
from tests.bench.pipelines import copies, emulated, gpu
from tests.bench.pipelines.copies import random_copies
from tests.bench.pipelines.pipeline import Array, Pipeline
from tests.bench.pipelines.products import random_product

COLUMNS, NARROW, ILLEGAL = 500_000_000, 1_000_000_000, 2_000_000_000  # the first numbers of these kinds
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "f32": 4, "s32": 4}

pytest.importorskip("cuda.bindings")


def matrix(pipeline: Pipeline, number: int) -> Array:
    """The values that a map of a product tells of, (rows, columns)."""
    buffer, tensor = pipeline.buffers[number], pipeline.maps[number]
    bits = buffer.raw.view(BITS[SIZES.get(buffer.kind, 1)])
    return values(buffer.kind, bits).reshape(tensor.shape[1], -1)[:, : tensor.shape[0]]


@pytest.mark.parametrize("seed", [0, 15, 21, 23, 37])
def test_copies_are_right_and_leave_their_sources_alone(seed: int):
    pipeline = random_copies(seed)
    done = emulated.emulate(pipeline)
    assert done.findings == ()
    assert done.after[:2] == (None, None)
    assert any(after is not None for after in done.after[2:])


def test_boxes_are_reduced_bit_by_bit():
    pipeline = random_copies(362)
    assert "reduced as boxes by xor" in pipeline.words
    done = emulated.emulate(pipeline)
    assert done.findings == ()
    (source, target), (start, _, aim) = pipeline.maps, (buffer.raw for buffer in pipeline.buffers[:3])
    stored = done.contents(pipeline)[2]
    tensor, before, after = (
        data[m.offset :].view(np.uint32).reshape(-1, m.strides[0] // 4)[: m.shape[1], : m.shape[0]]
        for m, data in ((source, start), (target, aim), (target, stored))
    )
    assert source.box == target.box
    assert source.shape[0] >= 32
    changed = before ^ after
    assert np.isin(changed[changed != 0], tensor).all()
    assert (changed != 0).any()


# Along K and along rows, with every swizzle, of every size; sums through shared memory as boxes.
@pytest.mark.parametrize("seed", [0, 5, 8, 9, 11, 30, 47, 66])
def test_products_are_those_of_the_matrices(seed: int):
    pipeline = random_product(seed)
    assert "sums as boxes" in pipeline.words
    assert "begun" not in pipeline.words
    done = emulated.emulate(pipeline)
    assert done.findings == ()
    a, b = matrix(pipeline, 0), matrix(pipeline, 1)
    a = a.T if "A MN-major" in pipeline.words else a
    b = b.T if "B MN-major" in pipeline.words else b
    kind, (columns, rows) = pipeline.buffers[-1].kind, pipeline.maps[2].shape
    stored = done.contents(pipeline)[-1]
    bits = stored.view(BITS[SIZES[kind]])
    found = (bits.view(np.int32).astype(float) if kind == "s32" else values(kind, bits)).reshape(-1, columns)
    expected, size = np.zeros((rows, columns)), np.ones((rows, columns))
    inside = slice(0, min(rows, len(a))), slice(0, len(b))
    expected[inside], size[inside] = (a @ b.T)[inside[0]], (abs(a) @ abs(b).T)[inside[0]]
    narrow = kind == "f16" or random_pipelines.of_bytes(pipeline.family)
    sign = -1 if (found[:rows] * expected).sum() < 0 else 1
    assert sign == 1 or "negative" in pipeline.words
    assert np.max(abs(sign * found[:rows] - expected) / np.maximum(size, 1e-6)) < (2e-3 if narrow else 2e-6)
    assert (stored.reshape(-1, columns * SIZES[kind])[rows:] == 0xA5).all()


@pytest.mark.parametrize("number", [2, 4, 7, 10, 12, 13, 17, 18, NARROW, NARROW + 5, NARROW + 20, NARROW + 25])
def test_other_pipelines_have_no_findings(number: int):
    done = random_pipelines.emulate(number)
    assert done.findings == ()


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(
    ("fault", "finding", "access"),
    [
        (copies.LOADED_ASKEW, "misaligned", "reads a box at"),
        (copies.STORED_ASKEW, "misaligned", "writes a box at"),
        (copies.STORED_BEFORE, "out-of-bounds", "writes a box at"),
    ],
)
def test_the_emulator_finds_the_fault_of_an_illegal_pipeline(seed: int, fault: str, finding: str, access: str):
    pipeline = random_copies(seed, fault=fault)
    assert pipeline.words.endswith(fault)
    found = emulated.emulate(pipeline).findings
    assert found
    assert all(each.startswith(f"{finding} ") and access in each for each in found)


@pytest.mark.parametrize("number", range(COLUMNS, COLUMNS + 8))
def test_columns_have_no_findings_and_leave_the_other_side_alone(number: int):
    pipeline, done = random_pipelines.draw(number), random_pipelines.emulate(number)
    assert done.findings == ()
    tensor, column = done.after
    assert (tensor is None, column is None) == ((False, True) if pipeline.words.endswith("out") else (True, False))


def test_drawn_launches_are_legal():
    for number in [*range(2, 40), 329, *range(COLUMNS, COLUMNS + 60), *range(NARROW, NARROW + 40)]:
        pipeline = random_pipelines.draw(number)
        assert pipeline.shared <= 227 << 10, number
        assert all(each.at(4096).fault() is None for each in pipeline.maps)


def test_a_file_holds_what_was_emulated(tmp_path: Path):
    made = [random_pipelines.emulate(number) for number in (2, 3)]
    emulated.write(tmp_path / "expected.npz", made)
    for one, other in zip(emulated.read(tmp_path / "expected.npz"), made, strict=True):
        assert (one.seed, one.digest, one.cubin) == (other.seed, other.digest, other.cubin)
        contents = (each.contents(random_pipelines.draw(each.seed)) for each in (one, other))
        assert all(np.array_equal(x, y) for x, y in zip(*contents, strict=True))
    assert [one.seed for one in emulated.read(tmp_path / "expected.npz", 1)] == [3]


def test_the_driver_gets_the_same_maps(monkeypatch: pytest.MonkeyPatch):
    from cuda.bindings import driver

    with driver_stub.fake_driver():
        for name in ("cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"):
            monkeypatch.setattr(driver_maps.cu, name, getattr(driver, name))
        for number in [*range(0, 40, 2), *range(COLUMNS, COLUMNS + 20)]:
            for m in random_pipelines.draw(number).maps:
                assert driver_maps.driver_map(m.at(4096)) == m.at(4096).encode()


def test_differences_are_told_by_element():
    mine = np.array([1.0, -2.0, 0.0], np.float32)
    real = mine.copy()
    real[1] = np.nextafter(np.float32(-2), np.float32(0))
    found = gpu.difference("f32", mine.view(np.uint8), real.view(np.uint8))
    assert (found.other_elements, found.largest_ulp) == (1, 1)
    assert 0 < found.largest_share < 1e-6
    assert found.first == "element 1: emulator 0xc0000000, GPU 0xbfffffff"
    assert gpu.difference("e5m2", mine.view(np.uint8), mine.view(np.uint8)).other_bytes == 0


class OneWorse:
    """A GPU that does what the emulator did, but for the last byte of one pipeline, and dies at others."""

    def run(self, pipeline: Pipeline, cubin: bytes) -> tuple[Array, ...]:
        if pipeline.seed == ILLEGAL:
            raise OSError("CUDA_ERROR_ILLEGAL_INSTRUCTION")
        after = [np.array(data) for data in random_pipelines.emulate(pipeline.seed).contents(pipeline)]
        if pipeline.seed == 4:
            after[-1][-1] ^= 1
        if pipeline.seed == 6:
            raise OSError("it is gone")
        return tuple(after)

    def finish(self) -> None: ...


def test_rows_tell_of_each_pipeline_that_is_not_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path, numbers = tmp_path / "expected.npz", [2, 4, 6, 7, ILLEGAL, ILLEGAL + 1]
    emulated.write(path, map(random_pipelines.emulate, numbers))

    class Worker:
        """`serve` in this process."""

        def __init__(self, command: list[str], **_: object) -> None:
            monkeypatch.setattr(sys, "argv", command[2:])
            with contextlib.redirect_stdout(io.StringIO()) as out:
                random_pipelines.main()
            self.stdout = io.StringIO(out.getvalue())

        def kill(self) -> None: ...

        def wait(self) -> None: ...

    monkeypatch.setattr(gpu, "Gpu", OneWorse)
    monkeypatch.setattr(random_pipelines, "subprocess", SimpleNamespace(Popen=Worker, PIPE=subprocess.PIPE))
    results = tmp_path / "results"
    monkeypatch.setenv("BENCH_RESULTS", str(results))
    command = ["random_pipelines", "--expected", str(path), "--differing", str(tmp_path / "kept"), "--record"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        random_pipelines.main()
    assert ended.value.code == 1
    assert "4 copies" in (said := capsys.readouterr().out)
    assert "1 of" in said
    figures = json.loads((results / "random_pipelines.json").read_text())["figures"]
    assert (figures["pipelines"], figures["with_every_bit_claimed"]) == (4, 4)
    assert figures["of_these_equal_in_every_byte"] == 2
    assert (figures["illegal"], figures["illegal_without_finding"], figures["left_out"]) == (2, [], 0)
    (accepted,) = figures["illegal_not_refused"]
    assert accepted.startswith(f"{ILLEGAL + 1}, ")
    assert accepted.endswith("it ended")
    assert [row["number"] for row in figures["differing"]] == [4]
    (failed,) = figures["failed"]
    assert failed.startswith("6, ")
    assert failed.endswith("OSError: it is gone")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["4.npz"]


def test_what_there_is_no_time_for_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(random_pipelines, "subprocess", SimpleNamespace(Popen=started))
    options = SimpleNamespace(within=0.0, seconds=1.0, differing=None)
    assert list(random_pipelines.gather(tmp_path, [2, 4], options)) == []  # type: ignore[arg-type]
    figures = random_pipelines.summarise([], {2: (), 4: ()})
    assert figures["left_out"] == 2


def test_a_process_that_says_nothing_is_given_up():
    def silent() -> Iterator[str]:
        import time

        time.sleep(5)
        yield "late"

    with pytest.raises(TimeoutError):
        next(random_pipelines.lines(silent(), 0.05))  # type: ignore[arg-type]
