"""A search on a GPU whose launches take the time that texts say: what wins on large sizes only is offered guarded."""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "judge"))

import simulated_gpu
from simulated_gpu import GPU, Oracle, SimulatedGpu, Version

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.builds.plan import Launch, LaunchTrace
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.fresh_sizes import FreshResult, FreshSize
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.stages import build
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine import workbench
from kernel_lsp.refine.guards import guarded
from kernel_lsp.refine.outcome import Refinement
from kernel_lsp.refine.search import refine
from kernel_lsp.runner.messages import oracle as truth
from kernel_lsp.runner.messages.oracle_answers import LoadedWorkload
from kernel_lsp.source.candidate import Candidate

SIZES = [200, 3000, 70_000, 500_000]
KERNEL = """extern "C" __global__ void scale(const float* x, float* y, int n) {
    // microseconds: 100 below 0, 100 from there
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i];
}
"""
WORKLOAD = """CASES = [dict(n=200), dict(n=3000), dict(n=70_000), dict(n=500_000)]
def inputs(n): ...
def reference(x): ...
def launch(module, x): ...
"""
_MICROSECONDS = re.compile(r"// microseconds: (\S+) below (\d+), (\S+) from there")
_GUARD = re.compile(r"if \(n (>=|<) (\d+)\) \{")


def variant(below: float, border: int, above: float) -> str:
    """The kernel, taking so many microseconds below a size and from it on."""
    return KERNEL.replace("100 below 0, 100 from there", f"{below} below {border}, {above} from there")


class _Version(Version):
    """A version whose launches take what its text says for a size; those of a guarded one 0.1 us more."""

    sizes: list[int]

    async def ask(self, request: Any, *, deadline: float) -> Any:
        if isinstance(request, simulated_gpu.messages.Load):
            self.text = request.text
            return simulated_gpu.answers.Loaded()
        return await super().ask(request, deadline=deadline)

    def _launch(self, buffer: str, count: int, deadline: float) -> list[float]:
        size = self.sizes[int(buffer.partition("/")[0])]
        self.seconds = [_microseconds(self.text, size) * 1e-6] * len(self.sizes)
        return super()._launch(buffer, count, deadline)


def _microseconds(text: str, size: int) -> float:
    found = _MICROSECONDS.findall(text)
    guard = _GUARD.search(text)
    takes_new = guard is not None and (size >= int(guard[2])) == (guard[1] == ">=")
    below, border, above = found[0] if guard is None or takes_new else found[-1]
    return float(below if size < int(border) else above) + (0.1 if guard else 0.0)


class _Oracle(Oracle):
    """An oracle that adds the cases that it is asked for."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(len(sizes))
        self.sizes = sizes

    async def ask(self, request: Any, *, deadline: float) -> Any:
        match request:
            case truth.LoadWorkload():
                names = tuple(f"n={n}" for n in self.sizes)
                return LoadedWorkload(names, ("x",), tuple(range(len(names))))
            case truth.OtherSizes() if request.changes:
                self.sizes += [changed["n"] for _, changed in request.changes]
                return tuple(f"n={changed['n']}" for _, changed in request.changes)
            case truth.OtherSizes():
                self.sizes.append(97)
                return ("n=97",)
            case _:
                return await super().ask(request, deadline=deadline)


class _Gpu(SimulatedGpu):
    """Sessions of `KERNEL`, whose launches are known."""

    @contextlib.asynccontextmanager
    async def session(self, folder: Path) -> AsyncGenerator[Session]:
        (folder / "scale.cu").write_text(KERNEL)
        (folder / "scale_workload.py").write_text(WORKLOAD)
        settings = Settings()
        judge = settings.judge.model_copy(update={"sanitize": "off", "steady_load": "off"})
        chosen = settings.refine.model_copy(update={"strategy": "tuner-only"})
        settings = settings.model_copy(update={"judge": judge, "refine": chosen})
        self.sizes = list(SIZES)
        pool = self._pool(len(SIZES), folder)
        pool.worker = self._worker
        opened = Session(pool, make_target(folder / "scale.cu"), settings, GPU, self._builders(folder))
        try:
            await opened.open()
            yield opened
        finally:
            await opened.close()

    async def _worker(self, _: object, role: str, **__: object) -> Any:
        if role == "oracle":
            return _Oracle(self.sizes)
        made = _Version(self)
        made.sizes = self.sizes
        return made

    def _builders(self, folder: Path) -> Any:
        made = super()._builders(folder)

        async def compiled(*_: object) -> Built:
            launches = [Launch("scale", (-(-n // 128), 1, 1), (128, 1, 1), arguments=(None, None, n)) for n in SIZES]
            plans = tuple(LaunchTrace(at, (launch,)) for at, launch in enumerate(launches))
            return replace(Built(Build(Binary("sm_90", b"", None, {}, ()), (), "nvrtc", 0.0), ()), plans=plans)

        made.build = compiled
        return made


def searched(variants: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Refinement:
    """The result of a search in which these variants are proposed for the kernel."""
    gpu = _Gpu(monkeypatch)
    monkeypatch.setattr(workbench, "resources_of", lambda _: ())
    monkeypatch.setattr(build, "_same_program", lambda *_: False)  # there is no machine code to compare

    async def main() -> Refinement:
        async with gpu.session(folder) as session:
            made = [session.target.version(text, f"variant {at}", "user") for at, text in enumerate(variants)]

            async def propose(_: int) -> list[Candidate]:
                proposed, made[:] = list(made), []
                return proposed

            proposer = SimpleNamespace(next=propose, tell=lambda *_: None)
            monkeypatch.setattr(workbench, "find_proposers", lambda *_: (lambda *_: [proposer],))
            return await refine(session, budget=300.0)

    return asyncio.run(main())


def test_what_wins_on_large_sizes_only_is_offered_behind_a_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = searched([variant(200, 10_000, 50)], tmp_path, monkeypatch)
    assert found.best is not None, [one.feedback.message for one in found.tried] + list(found.notes)
    assert found.best.verdict is Outcome.FASTER
    assert found.best.evidence.candidate_label == "guarded: n >= 16384; variant 0"
    text = found.best.evidence.sources["candidate"]
    assert "    if (n >= 16384) {\n        scale_n_from_16384(x, y, n);" in text
    assert text.endswith(KERNEL.partition("\n")[2]), "the other way is the old text"
    split = found.best.evidence.split
    assert split is not None
    assert split.predicate == "n >= 16384"
    assert [(one.case, one.side, one.path) for one in split.cases] == [
        ("n=200", "loses", "old"),
        ("n=3000", "loses", "old"),
        ("n=70000", "wins", "new"),
        ("n=500000", "wins", "new"),
    ]
    assert [(one.case, one.path, one.failed) for one in split.fresh] == [("n=16384", "new", ""), ("n=16376", "old", "")]
    assert split.fresh[0].speedup == pytest.approx(2.0, rel=0.05)
    assert split.fresh[1].speedup == pytest.approx(1.0, rel=0.05)
    verdicts = [one.verdict.verdict for one in found.tried if one.verdict is not None]
    assert Outcome.FASTER in verdicts


def test_a_border_that_fresh_sizes_refute_moves_to_the_size_that_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = searched([variant(200, 60_000, 50)], tmp_path, monkeypatch)
    assert found.best is not None
    assert found.best.evidence.candidate_label == "guarded: n >= 70000; variant 0"


@pytest.mark.parametrize("path", ["new", "old"])
def test_a_border_that_sizes_refute_is_not_drawn_by_the_grid_instead(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grid is no parameter, so no size can speak for it. Slow code of the old path is another matter."""

    async def slower(session: Session, made: Candidate, sizes: list[FreshSize]) -> list[FreshResult]:
        results = [FreshResult(f"n={one.changes['n']}", 1.0, (0.99, 1.01)) for one in sizes]
        results[path == "old"] = FreshResult("n=20000", 1.5, (1.4, 1.6))
        return results

    monkeypatch.setattr(guarded, "try_sizes", slower)
    found = searched([variant(200, 10_000, 50)], tmp_path, monkeypatch)
    [note] = found.notes
    assert "`n >= 16384` does not hold on fresh sizes: n=20000 is slower there (0.67x)" in note
    assert ("`gridDim.x >= 128` cannot be tried on fresh sizes" in note) == (path == "new")
    assert ("the file with `gridDim.x >= 128` is " in note) == (path == "old"), "it was judged"


@pytest.mark.parametrize(("below", "above"), [(50, 50), (200, 200)])
def test_on_a_uniform_workload_no_guard_is_written(
    below: float, above: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = searched([variant(below, 10_000, above)], tmp_path, monkeypatch)
    assert not [one for one in found.tried if "guarded" in one.candidate.label]
    assert (found.best is not None) == (below < 100)
    assert all(one.verdict.evidence.split is None for one in found.tried if one.verdict is not None)


def test_without_a_condition_nothing_is_offered_and_the_cases_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = variant(200, 10_000, 50).replace("int n)", "long long n)")
    found = searched([text], tmp_path, monkeypatch)
    assert found.best is None
    last = next(one.verdict for one in reversed(found.tried) if one.verdict is not None)
    split = last.evidence.split
    assert split is not None
    assert (split.predicate, len(split.cases)) == ("", 4)
    assert "the variant changes the parameters of `scale`" in split.note
    assert [one.side for one in split.cases] == ["loses", "loses", "wins", "wins"]
    [note] = found.notes
    assert note.startswith("`variant 0` is faster on 2 of 4 cases and not offered: it cannot be guarded: the variant ")


def test_what_gains_more_everywhere_is_not_beaten_by_a_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched([variant(40, 10_000, 40), variant(200, 10_000, 50)], tmp_path, monkeypatch)
    assert found.best is not None
    assert found.best.evidence.candidate_label == "variant 0"
    assert not [one for one in found.tried if "guarded" in one.candidate.label]
