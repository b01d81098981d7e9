"""The interface of proposers of candidates, be it a table of settings or a language model.

The search takes some candidates with `next`, gives them to the judge, and reports each with `tell` as soon as it has an
outcome. Proposals and reports may overlap: a proposer must handle being asked again while earlier candidates are still
under judgement, and reports in any order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kernel_lsp.judge.verdict import Mismatch, Outcome, Stage
from kernel_lsp.source.candidate import Candidate


@dataclass(frozen=True, slots=True)
class Facts:
    """The resources of a compiled kernel, the worst of its launches; None where unknown.

    Attributes:
        registers: per thread.
        spill_bytes: stores and loads per thread together.
        shared_bytes: static and dynamic, per block.
        occupancy: share of the multiprocessor's warps that can be resident, 0 to 1.
    """

    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """The outcome of a candidate.

    Attributes:
        stage: the stage that decided it.
        verdict: what the judge said.
        ratio: time over the baseline's time (below 1 is faster); None when it was not timed.
        interval: confidence interval of `ratio`.
        message: what to tell the proposer: compiler errors, the first wrong index, why it was not worth running.
        facts: what its build showed; None when it did not build.
        log: all that the compiler said, in the user's coordinates; empty unless the build failed.
        mismatch: the first wrong element, where one was found.
        setting: what else there is to say: with which settings it was measured, where they are not those of its text.
        predicted: without a GPU, the predicted time over the baseline's (`refine.prediction`); never a measurement.
    """

    stage: Stage
    verdict: Outcome
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    message: str = ""
    facts: Facts | None = None
    log: str = ""
    mismatch: Mismatch | None = None
    setting: str = ""
    predicted: float | None = None


class Proposer(Protocol):
    """A source of candidates for one kernel. It only proposes: the judge decides what is right or faster."""

    async def next(self, budget: int) -> Sequence[Candidate]:
        """Return at most `budget` new candidates; none when there is nothing left to propose.

        May take as long as it needs (for a model, minutes); cancelling the task cancels it.
        """
        ...

    def tell(self, candidate: Candidate, feedback: Feedback) -> None:
        """Learn the outcome of `candidate`; called for the baseline and for other proposers' candidates too."""
        ...
