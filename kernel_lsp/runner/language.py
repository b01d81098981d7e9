"""The part of a language that runs in a build worker, where the user's code may run. Worker processes only."""

from collections.abc import Callable
from typing import Protocol

from kernel_lsp.runner.messages.build import BuildCandidate, CandidateBuild
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import part_of
from kernel_lsp.workload.workload import Workload


class RunnerPart(Protocol):
    """Builds the files of one language."""

    def build(self, request: BuildCandidate, workload: Callable[[], Workload | None]) -> CandidateBuild:
        """Return a candidate's build and the launches of its workload, which calling `workload` loads.

        A kernel that does not compile is a result, with diagnostics.

        Raises:
            WorkloadError: the workload does not work, or `launch` does not fit the file.
        """
        ...


def runner_part(language: Language) -> RunnerPart:
    """Return the part that builds files in a language."""
    return part_of(language, "runner")
