"""Builds CUDA files: their device code as one binary, or the whole file as an extension. Worker processes only."""

from collections.abc import Callable, Sequence
from types import FunctionType

from kernel_lsp.compiler.binary import Build
from kernel_lsp.compiler.cuda import build_cuda, build_included
from kernel_lsp.compiler.host.request import ExtensionRequest, cuda_file_request
from kernel_lsp.compiler.planner import plan_cuda
from kernel_lsp.runner.language import RunnerPart
from kernel_lsp.runner.messages.build import BuildCandidate, CandidateBuild
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_host_functions
from kernel_lsp.source.files import find_kernels
from kernel_lsp.workload.execute import load_module
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
        launch = load_module(request.launch.text, request.launch.path).launch if request.launch else None
        kernels = [kernel.name for kernel in find_kernels(source.text, source.path)]
        planned = plan_cuda(called, kernels, request.device, launch)
        if planned.needs_extension:
            extension = _own_request(source, launch or called.launch)
            return CandidateBuild(Build(None, (), "none", 0.0), requests=(extension,))
        return CandidateBuild(compile_names(planned.names), planned.plans)


def _own_request(source: SourceFile, launch: Callable[..., object] | None) -> ExtensionRequest:
    """Return a CUDA file as an extension, with the host functions that `launch` calls bound unless the file binds
    some.
    """
    assert isinstance(launch, FunctionType), "planning has called it"
    called = launch.__code__.co_names
    functions = [name for name in find_host_functions(source.text) if name.rpartition("::")[2] in called]
    return cuda_file_request(source.path, source.text, functions)


PART: RunnerPart = _Cuda()
