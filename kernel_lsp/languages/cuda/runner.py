"""Builds CUDA files: their device code as one binary, or the whole file as an extension. Worker processes only."""

from collections.abc import Callable, Sequence
from types import FunctionType

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.cuda.build import build_cuda, build_included
from kernel_lsp.compiler.cuda.planner import CudaPlan, plan_cuda
from kernel_lsp.compiler.host.request import cuda_file_request
from kernel_lsp.runner.language import RunnerPart
from kernel_lsp.runner.messages.build import BuildCandidate, CandidateBuild
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_host_functions
from kernel_lsp.source.files import find_kernels
from kernel_lsp.workload.load import launch_of
from kernel_lsp.workload.workload import Workload


class _Cuda:
    def build(self, request: BuildCandidate, workload: Callable[[], Workload | None]) -> CandidateBuild:
        source, called = request.kernel, workload()

        def compile_names(names: Sequence[str]) -> Build:
            arch, options = request.device.arch, request.options
            made = build_cuda(source, arch, names, options, request.cache.opened())
            if made.binary is None and request.before is not None:
                return build_included(source, request.before, arch, names, options)
            return made

        assert called is not None, "a compile worker builds what has no workload"
        launch = launch_of(request.launch.text, request.launch.path) if request.launch else None
        kernels = [kernel.name for kernel in find_kernels(source.text, source.path)]
        planned = plan_cuda(called, kernels, request.device, launch)
        if planned.needs_extension:
            extension = cuda_file_request(source.path, source.text, _called(source, launch or called.launch, planned))
            return CandidateBuild(Build(None, (), "none", 0.0), requests=(extension,))
        return CandidateBuild(compile_names(planned.names), planned.plans)


def _called(source: SourceFile, launch: Callable[..., object] | None, planned: CudaPlan) -> list[str]:
    """Return the host functions of a file that `launch` calls, as far as its text or its first call tells."""
    assert isinstance(launch, FunctionType), "planning has called it"
    called = {*launch.__code__.co_names, *planned.host_functions}
    return [name for name in find_host_functions(source.text) if name.rpartition("::")[2] in called]


PART: RunnerPart = _Cuda()
