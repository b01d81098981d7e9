"""Plans a bench: every candidate with its problem, and the parts that the ledger still lacks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.bench.records import CandidateResult, Search, key_of
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import language_of, read_source
from kernel_lsp.source.kernel import Language
from kernel_lsp.workload.suite import ProblemFile, Sample


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The comparisons requested beside the verdict.

    Attributes:
        compiled: a comparison of right candidates with `torch.compile`, on a GPU.
        published: a verdict by KernelBench's own method.
    """

    compiled: bool = True
    published: bool = False


@dataclass(frozen=True, slots=True)
class BenchJob:
    """One candidate for one problem: `key` names its result, `text` is the candidate's."""

    problem: ProblemFile
    sample: Sample
    text: str
    key: str

    @property
    def label(self) -> str:
        """Return `level 1 problem 19 sample 0`, after the name of its run, if any."""
        run = f"{self.sample.run}: " if self.sample.run else ""
        return f"{run}level {self.problem.level} problem {self.problem.number} sample {self.sample.index}"

    @property
    def candidate(self) -> Candidate:
        """Return the candidate for the judge; its language need not be the problem's."""
        path = self.sample.path
        language = language_of(path, self.text) or Language.TORCH
        return Candidate(language, SourceFile(path, self.text), None, self.label, "user")


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The jobs of a bench.

    Attributes:
        jobs: in the order of problems.
        strangers: candidates whose problem was not requested.
        searches: the searches that found the candidates; empty if these were given.
    """

    jobs: tuple[BenchJob, ...]
    strangers: tuple[Path, ...]
    searches: tuple[Search, ...] = ()


def make_plan(
    problems: Sequence[ProblemFile],
    samples: Sequence[Sample],
    settings: Settings,
    gpus: Sequence[Gpu],
    there: Mapping[str, str],
) -> BenchPlan:
    """Return the plan for these candidates.

    Args:
        problems: those that were asked for; candidates for others are left out.
        samples: the candidates.
        settings: those in force.
        gpus: what they will be judged on; of one kind, as results of different kinds cannot be compared.
        there: versions of the compilers and libraries that will be used.

    Raises:
        SourceError: a file cannot be read.
    """
    known = {(problem.level, problem.number): problem for problem in problems}
    texts = {problem.path: read_source(problem.path).text for problem in problems}
    conditions = conditions_of(settings, gpus, there)
    jobs: list[BenchJob] = []
    strangers: list[Path] = []
    for sample in samples:
        problem = known.get((sample.level, sample.number))
        if problem is None:
            strangers.append(sample.path)
            continue
        text = read_source(sample.path).text
        jobs.append(BenchJob(problem, sample, text, key_of(texts[problem.path], text, *conditions)))
    return BenchPlan(tuple(sorted(jobs, key=lambda job: (job.problem, job.sample))), tuple(strangers))


def conditions_of(
    settings: Settings, gpus: Sequence[Gpu], there: Mapping[str, str], *others: str
) -> tuple[dict[str, object], str, Mapping[str, str]]:
    """Return the arguments of `key_of` for the conditions of a result: settings, place, versions.

    Args:
        settings: the settings, of which the judge's and the build's count.
        gpus: of one kind; none is the emulator.
        there: versions of the compilers and libraries in use.
        others: further groups of settings that count.
    """
    counted = {name: getattr(settings, name).model_dump(mode="json") for name in ("judge", "build", *others)}
    return counted, gpus[0].name if gpus else "emulator", there


def outstanding(result: CandidateResult, asked: Comparisons) -> Comparisons:
    """Return the requested parts that a result still lacks; only timed candidates are timed again."""
    compiled = asked.compiled and result.eager.right and result.eager.speedup is not None
    return Comparisons(
        compiled=compiled and result.compiled is None and not result.compiled_trouble,
        published=asked.published and result.published is None and not result.published_trouble,
    )
