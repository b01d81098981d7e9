"""Builds CuTe DSL files without a GPU, for the calls of the workload. Worker processes only.

CuTe's compiler needs the types and layouts of a call, and no GPU. So `launch` runs on tensors that are only shapes: a
function under `@cute.jit` that it calls, or has compiled by `cute.compile`, is compiled and not run.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.merging import merged_build
from kernel_lsp.compiler.builds.plan import Launch, LaunchTrace
from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.errors import WorkloadError
from kernel_lsp.languages.cute.source import find_entries
from kernel_lsp.runner.language import RunnerPart
from kernel_lsp.runner.messages.build import BuildCandidate, CandidateBuild
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.text import Lines
from kernel_lsp.workload.execute import blame, load_module
from kernel_lsp.workload.imports import announce
from kernel_lsp.workload.load import bind_launch
from kernel_lsp.workload.workload import Workload, describe_case, file_of, make_inputs

if TYPE_CHECKING:
    from kernel_lsp.languages.cute.compiling import CallCompiler

MISSING = "CuTe DSL is not installed: `pip install 'kernel-lsp[cute]'` brings its compiler."
_UNKNOWN = "CuTe compiles calls, and without a workload nothing tells the types and layouts of one"
_OF_PROBLEM = "kernels in CuTe DSL are judged with a workload that has a `launch`, not yet as a `ModelNew`"


class _Cute:
    def build(self, request: BuildCandidate, workload: Callable[[], Workload | None]) -> CandidateBuild:
        source, started = request.kernel, time.perf_counter()
        announce(source.text, source.path)  # before the workload, which may import it
        try:
            from kernel_lsp.languages.cute.compiling import CallCompiler, NotCompiledError
        except ImportError:
            return _failed(source, 1, MISSING)
        names = [kernel.name for kernel in find_kernels(source.text, source.path)]
        compiler = CallCompiler(source.path, names, request.device.arch)
        with compiler.instead_of_running():
            called = workload()
            if called is None:
                return CandidateBuild(Build(None, (), "cute", 0.0), assumed=_not_compiled(source))
            if called.problem is not None:
                return _failed(source, 1, _OF_PROBLEM)
            try:
                _call(request, called, compiler)
            except WorkloadError as error:
                if isinstance(refused := error.__cause__, NotCompiledError):
                    return _failed(source, refused.line or 1, refused.message)
                raise
        if not compiler.binaries:
            raise WorkloadError("`launch` launches no kernel", called.path)
        took = time.perf_counter() - started
        builds = [Build(one, (), "cute", took / len(compiler.binaries)) for one in compiler.binaries]
        build = merged_build(builds, compiler.binaries)
        kernels = [kernel for binary in compiler.binaries for kernel in binary.kernels]
        # Host code computes the number of blocks when it runs; their size is compiled in.
        launches = [Launch(k.name, (0, 0, 0), k.required_threads or (0, 0, 0), entry=k.entry) for k in kernels]
        return CandidateBuild(build, (LaunchTrace(0, tuple(launches)),), tuple(compiler.binaries))


def _call(request: BuildCandidate, workload: Workload, compiler: "CallCompiler") -> None:
    """Call the workload's `launch` for each case, with tensors that are only shapes."""
    source, launch = request.kernel, request.launch
    with fake_gpu(request.device):
        module = load_module(source.text, source.path)
        compiler.take_over(module, [entry.name for entry in find_entries(source.text, source.path)])
        bound = bind_launch(module, source.path, launch and launch.text, launch and launch.path)
        for case in workload.cases:
            inputs = make_inputs(workload, case)
            with blame(file_of(bound, workload.path), f"`launch` raised for case {describe_case(case)}"):
                bound(*inputs)


def _failed(source: SourceFile, line: int, message: str) -> CandidateBuild:
    said = Diagnostic(str(source.path), line, 1, line, 1, Severity.ERROR, message)
    return CandidateBuild(Build(None, (said,), "cute", 0.0))


def _not_compiled(source: SourceFile) -> tuple[Assumed, ...]:
    lines = Lines(source.text.encode())
    return tuple(
        Assumed(kernel.name, lines.position(kernel.name_span.start)[0], (), compiled=False, problem=_UNKNOWN)
        for kernel in find_kernels(source.text, source.path)
    )


PART: RunnerPart = _Cute()
