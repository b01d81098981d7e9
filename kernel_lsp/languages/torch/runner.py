"""Builds Python files that hold CUDA: a problem's model with its extensions, else the CUDA text alone. Workers only."""

from collections.abc import Callable

from kernel_lsp.compiler.builds.plan import LaunchTrace
from kernel_lsp.compiler.cuda.inline import build_inline
from kernel_lsp.runner.language import RunnerPart
from kernel_lsp.runner.messages.build import BuildCandidate, CandidateBuild
from kernel_lsp.runner.workers.answers import execute_answer
from kernel_lsp.workload.workload import Workload


class _Torch:
    def build(self, request: BuildCandidate, workload: Callable[[], Workload | None]) -> CandidateBuild:
        called = workload()
        if called is not None and called.problem is not None:
            asked = execute_answer(request.kernel, called, request.device)
            return CandidateBuild(asked.build, requests=asked.requests)
        made = build_inline(request.kernel, request.device.arch, request.options, request.cache.opened())
        return CandidateBuild(made.build, (LaunchTrace(0, made.launches),), made.binaries)


PART: RunnerPart = _Torch()
