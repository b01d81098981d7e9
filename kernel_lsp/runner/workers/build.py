"""The build worker: plans and compiles candidates without a GPU. NVRTC stays loaded between CUDA candidates.

Planning runs the workload's Python, and building a Triton file runs that file too; hence a process of its own.
"""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from types import FunctionType

from kernel_lsp.compiler.binary import Binary, Build
from kernel_lsp.compiler.cache import BuildCache
from kernel_lsp.compiler.cuda import build_cuda, build_included
from kernel_lsp.compiler.cuda_assumed import build_unlaunched
from kernel_lsp.compiler.host import compiler
from kernel_lsp.compiler.host.record import ExtensionBuild
from kernel_lsp.compiler.host.request import ExtensionRequest, cuda_file_request
from kernel_lsp.compiler.inline import build_inline
from kernel_lsp.compiler.plan import Plan
from kernel_lsp.compiler.planner import plan_cuda
from kernel_lsp.compiler.pretend import pretend_gpu
from kernel_lsp.runner.messages.build import (
    BuildCandidate,
    BuildExtension,
    BuildExtensionFully,
    BuildOwnKernels,
    BuildRole,
    CacheFolder,
    CandidateBuild,
    PrepareHeader,
)
from kernel_lsp.runner.workers.answers import execute_answer, load_answer
from kernel_lsp.runner.workers.problems import extensions_left_out
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_host_functions
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Language
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.imports import announce
from kernel_lsp.workload.load import bind_launch, load_workload
from kernel_lsp.workload.workload import Workload

_DEVICE = Path(__file__).parents[2] / "device"
_NOTHING = CandidateBuild(Build(None, (), "none", 0.0))


def methods() -> BuildRole:
    """Return what answers this role's requests."""
    return _Builder()


class _Builder:
    """Answers each request by itself; compilers, and workloads that were run, are kept for later ones."""

    def build(self, request: BuildCandidate) -> CandidateBuild:
        """Build a candidate.

        Raises:
            WorkloadError: the workload does not work, or `launch` does not fit the file.
        """
        if request.language is Language.TRITON:  # before the workload, which may import it
            announce(request.kernel.text, request.kernel.path)
        with pretend_gpu(request.device):  # a workload may ask for the GPU's properties as soon as it is imported
            workload = _workload(request.workload) if request.workload else None
        if request.language is Language.TRITON:
            return _build_triton(request, workload) if workload else _build_assumed(request)
        if request.language is Language.CUDA:
            return _build_cuda(request, workload)
        if workload is not None and workload.problem is not None:
            asked = execute_answer(request.kernel, workload, request.device)
            return CandidateBuild(asked.build, requests=asked.requests)
        made = build_inline(request.kernel, request.device.arch, request.options, _cache(request.cache))
        return CandidateBuild(made.build, (Plan(0, made.launches),), made.binaries)

    def build_extension(self, request: BuildExtension) -> ExtensionBuild | str:
        """Build an extension on the fast path; else return the reason against that."""
        from kernel_lsp.runner.workers import inline

        cache = request.cache
        return inline.build_extension(
            request.extension, request.arch, request.origin, cache.path, cache.limit, request.options
        )

    def build_extension_fully(self, request: BuildExtensionFully) -> ExtensionBuild:
        """Build an extension as torch does."""
        from kernel_lsp.runner.workers import inline

        return inline.build_fully(
            request.extension, request.arch, request.origin, request.folder, request.reason, request.options
        )

    def build_own_kernels(self, request: BuildOwnKernels) -> Binary:
        """Build kernels of ours."""
        path = _DEVICE / f"{request.name}.cu"
        built = build_cuda(SourceFile(path, path.read_text()), request.arch, cache=_cache(request.cache))
        assert built.binary is not None, built.log
        return built.binary

    def prepare_header(self, request: PrepareHeader) -> None:
        """Compile what every extension on the fast path begins with."""
        compiler.prepare_header(request.folder)


def _build_cuda(request: BuildCandidate, workload: Workload | None) -> CandidateBuild:
    source = request.kernel

    def compile_names(names: Sequence[str]) -> Build:
        return build_cuda(source, request.device.arch, names, request.options, _cache(request.cache))

    if workload is None:
        made, plan, assumed = build_unlaunched(source, compile_names, request.including)
        if made.binary is None and (before := request.before) is not None:

            def compile_included(names: Sequence[str]) -> Build:
                return build_included(source, before, request.device.arch, names, request.options)

            made, plan, assumed = build_unlaunched(source, compile_included, request.including)
        return CandidateBuild(made, (plan,), assumed=assumed)
    launch = load_module(request.launch.text, request.launch.path).launch if request.launch else None
    kernels = [kernel.name for kernel in find_kernels(source.text, source.path)]
    planned = plan_cuda(workload, kernels, request.device, launch)
    if planned.needs_extension:
        return CandidateBuild(_NOTHING.build, requests=(_own_request(source, launch or workload.launch),))
    return CandidateBuild(compile_names(planned.names), planned.plans)


def _own_request(source: SourceFile, launch: Callable[..., object] | None) -> ExtensionRequest:
    """Return a CUDA file as an extension, with host functions that `launch` calls bound unless the file binds some."""
    assert isinstance(launch, FunctionType), "planning has called it"
    called = launch.__code__.co_names
    functions = [name for name in find_host_functions(source.text) if name.rpartition("::")[2] in called]
    return cuda_file_request(source.path, source.text, functions)


def _build_triton(request: BuildCandidate, workload: Workload) -> CandidateBuild:
    from kernel_lsp.compiler.triton import build_triton
    from kernel_lsp.compiler.triton_own import require_own

    os.environ["TRITON_CACHE_DIR"] = str(request.triton_cache)
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

    made = build_triton(source, workload, load, request.device, request.processes)
    if made.plans:
        require_own(made.launched, source, bound[0])
    return CandidateBuild(made.build, made.plans, made.binaries)


def _build_assumed(request: BuildCandidate) -> CandidateBuild:
    from kernel_lsp.compiler.triton_assumed import build_assumed

    os.environ["TRITON_CACHE_DIR"] = str(request.triton_cache)
    made, assumed = build_assumed(request.kernel, request.device, request.processes)
    return CandidateBuild(made.build, made.plans, made.binaries, assumed=assumed)


def _cache(folder: CacheFolder) -> BuildCache:
    return BuildCache(folder.path, folder.limit)


@lru_cache(maxsize=8)
def _workload(file: SourceFile) -> Workload:
    with extensions_left_out(file.text):
        return load_workload(file.text, file.path)
