"""Builds Triton files: the kernels that the workload launches, else all kernels, for assumed types. Workers only."""

import os
from collections.abc import Callable

from kernel_lsp.runner.language import RunnerPart
from kernel_lsp.runner.messages.build import BuildCandidate, CandidateBuild
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.imports import announce
from kernel_lsp.workload.load import bind_launch
from kernel_lsp.workload.workload import Workload


class _Triton:
    def build(self, request: BuildCandidate, workload: Callable[[], Workload | None]) -> CandidateBuild:
        announce(request.kernel.text, request.kernel.path)  # before the workload, which may import it
        called = workload()
        os.environ["TRITON_CACHE_DIR"] = str(request.triton_cache)
        return _build_launched(request, called) if called else _build_assumed(request)


def _build_launched(request: BuildCandidate, workload: Workload) -> CandidateBuild:
    from kernel_lsp.compiler.triton.build import build_triton  # Triton reads the environment when it is imported
    from kernel_lsp.compiler.triton.own_kernels import require_own
    from kernel_lsp.runner.workers.answers import load_answer

    source, launch = request.kernel, request.launch

    if workload.problem is not None:
        answer = lambda: load_answer(source, workload).launch(0)  # noqa: E731
        made = build_triton(source, workload, answer, request.device, request.processes)
        return CandidateBuild(made.build, made.plans, made.binaries)
    bound: list[Callable[..., object]] = []

    def load() -> Callable[..., object]:
        module = load_module(source.text, source.path)
        bound[:] = [bind_launch(module, source.path, launch and launch.text, launch and launch.path)]
        return bound[0]

    made = build_triton(source, workload, load, request.device, request.processes, misaligned=request.misaligned)
    if made.plans:
        require_own(made.launched, source, bound[0])
    return CandidateBuild(made.build, made.plans, made.binaries)


def _build_assumed(request: BuildCandidate) -> CandidateBuild:
    from kernel_lsp.compiler.triton.assumed import build_assumed

    made, assumed = build_assumed(request.kernel, request.device, request.processes)
    return CandidateBuild(made.build, made.plans, made.binaries, assumed=assumed)


PART: RunnerPart = _Triton()
