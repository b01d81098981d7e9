"""What is asked of a language in a build worker, where the user's code may be run. Worker processes only."""

from collections.abc import Callable
from typing import Protocol

from kernel_lsp.runner.messages.build import BuildCandidate, CandidateBuild
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import part_of
from kernel_lsp.workload.workload import Workload


class RunnerPart(Protocol):
    """How files in one language are built."""

    def build(self, request: BuildCandidate, workload: Callable[[], Workload | None]) -> CandidateBuild:
        """Return a candidate's build and the launches of its workload, which calling `workload` loads.

        A kernel that does not compile is a result, with diagnostics.

        Raises:
            WorkloadError: the workload does not work, or `launch` does not fit the file.
        """
        ...


def runner_part(language: Language) -> RunnerPart:
    """Return how files in a language are built."""
    return part_of(language, "runner")
