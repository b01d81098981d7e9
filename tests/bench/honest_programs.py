"""The honest programs that `honest.py` has judged: examples, twins of exploits, answers to problems, public kernels."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.check import find_kernel_files
from kernel_lsp.judge.target import Target
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.modules import is_answer
from kernel_lsp.workload.spec import require_workload
from kernel_lsp.workload.suite import find_problems, find_samples
from tests.exploits.catalogue import entries
from tests.wild.catalogue import kernels_in

_REPOSITORY = Path(__file__).parents[2]
_EXAMPLES = _REPOSITORY / "examples"
_SAMPLES = _REPOSITORY / "tests" / "kernelbench"
ORIGIN = "model:honest"  # candidates of a model are held to the strictest rules


@dataclass(frozen=True)
class Program:
    """An honest program, and what it is judged beside.

    Attributes:
        name: of the judgement.
        kind: `example`, `twin`, `kernelbench` or `public`.
        kernel: the baseline's file.
        workload: where it is not found by the kernel file's name.
        path: the program's file, where that is another one than the baseline's.
        text: of the program.
        launch: its own text of the workload, where it has one.
        problems: KernelBench's root, where the baseline is one of its problems.
    """

    name: str
    kind: str
    kernel: Path
    text: str
    workload: Path | None = None
    path: Path | None = None
    launch: str | None = None
    problems: Path | None = None

    @property
    def baseline(self) -> str:
        """What distinguishes the session that it is judged in."""
        return f"{self.kind} {self.name.partition(' ')[0]}"

    def candidate(self, target: Target) -> Candidate:
        """The program as a candidate for a target made from `kernel`."""
        if target.workload.problem:
            return target.answer(SourceFile(self.path or self.kernel, self.text), self.name, ORIGIN)
        return target.version(self.text, self.name, ORIGIN, self.launch)


def find_programs(public: Path | None, problems: Path | None) -> list[Program]:
    """Return all programs there are, with names that nobody shares.

    Args:
        public: folder that `tests.wild.fetch` filled; None for no public kernels.
        problems: KernelBench's root, by default `public/kernelbench`; its candidates are left out where there is none.
    """
    if problems is None and public is not None and (public / "kernelbench").is_dir():
        problems = public / "kernelbench"
    found = [*_examples(), *_twins()]
    found += _answers(problems) if problems is not None else ()
    found += _public(public) if public is not None else ()
    return found


def again(path: Path, text: str) -> str:
    """A file's text with a comment at its end, which makes it another candidate and the same program."""
    return f"{text}\n{'#' if path.suffix == '.py' else '//'} again\n"


def _examples() -> Iterator[Program]:
    for source in find_kernel_files([_EXAMPLES]):
        name = str(source.path.relative_to(_EXAMPLES))
        yield Program(f"{name} itself", "example", source.path, again(source.path, source.text))
        if is_answer(source.text):
            problem = require_workload(source).source.path
            yield Program(f"{problem.relative_to(_EXAMPLES)} {name}", "example", problem, source.text, path=source.path)


def _twins() -> Iterator[Program]:
    for entry in entries():
        if entry.honest:
            name = f"{entry.target.stem} {entry.name}"
            yield Program(name, "twin", entry.target, entry.text, launch=entry.launch)


def _answers(root: Path) -> Iterator[Program]:
    problems = {(problem.level, problem.number): problem.path for problem in find_problems(root)}
    right = {
        entry["file"] for entry in json.loads((_SAMPLES / "candidates.json").read_text()) if entry["kind"] == "right"
    }
    for sample in find_samples(_SAMPLES / "candidates"):
        problem = problems.get((sample.level, sample.number))
        if problem is not None and sample.path.name in right:
            name = f"{sample.level}/{sample.number} sample {sample.index}"
            text = sample.path.read_text()
            yield Program(name, "kernelbench", problem, text, path=sample.path, problems=root)


def _public(folder: Path) -> Iterator[Program]:
    for kernel, paths in kernels_in(folder):
        text = again(paths[0], paths[0].read_text())
        yield Program(f"{kernel.name} itself", "public", paths[0], text, kernel.workload)
        for version in kernel.versions[1:]:
            path = paths[kernel.places.index(kernel.place(version))]
            text, launch = again(path, path.read_text()), kernel.launch_text(version)
            name = f"{kernel.name} version {version}"
            yield Program(name, "public", paths[0], text, kernel.workload, launch=launch)
