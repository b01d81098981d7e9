"""The build worker: plans and compiles candidates without a GPU. NVRTC stays loaded between CUDA candidates.

Planning runs the workload's Python, and building a Triton file runs that file too; hence a process of its own.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from kernel_lsp.build.binary import Binary, Build
from kernel_lsp.build.cache import BuildCache
from kernel_lsp.build.cuda import BuildOptions, build_cuda
from kernel_lsp.build.host import compiler
from kernel_lsp.build.host.record import ExtensionBuild
from kernel_lsp.build.host.request import ExtensionRequest, cuda_file_request
from kernel_lsp.build.inline import build_inline
from kernel_lsp.build.plan import Plan
from kernel_lsp.build.planner import plan_cuda
from kernel_lsp.runner.workers.answers import execute_answer, load_answer
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_host_functions
from kernel_lsp.source.files import find_kernels
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.load import bind_launch, load_workload
from kernel_lsp.workload.workload import Workload

_DEVICE = Path(__file__).parents[2] / "device"
_REQUEST = TypeAdapter(ExtensionRequest)
_NOTHING = Build(None, (), "none", 0.0)


def methods() -> Mapping[str, Callable[..., Any]]:
    """What this role answers to."""
    return {
        "build": build,
        "build_requested": build_requested,
        "build_requested_fully": build_requested_fully,
        "build_own": build_own,
        "prepare_header": prepare_header,
    }


def build_own(name: str, arch: str, cache_folder: str, cache_limit: int) -> dict[str, Any]:
    """The harness's own kernels of `device/NAME.cu` for `arch`."""
    path = _DEVICE / f"{name}.cu"
    built = build_cuda(SourceFile(path, path.read_text()), arch, cache=_cache(cache_folder, cache_limit))
    assert built.binary is not None, built.log
    return asdict(built.binary)


def prepare_header(cache_folder: str) -> None:
    """Compile what every extension on the fast path begins with."""
    compiler.prepare_header(Path(cache_folder))


def build(
    *,
    language: str,
    path: str,
    text: str,
    arch: str,
    workload_path: str | None,
    workload_text: str | None,
    launch_path: str | None,
    launch_text: str | None,
    options: list[str],
    include_dirs: list[str],
    cache_folder: str,
    cache_limit: int,
    triton_cache: str,
    processes: int,
    **_: Any,
) -> dict[str, Any]:
    """Build one candidate and plan its launches; extensions that it asks for are `requests`, to be built by themselves.

    A CUDA file is such a request itself when its workload calls host functions of it.

    Raises:
        WorkloadError: the workload does not work, or `launch` does not fit the file.
    """
    source = SourceFile(Path(path), text)
    workload = _workload(workload_text, workload_path) if workload_path and workload_text else None
    if language == "triton":
        os.environ["TRITON_CACHE_DIR"] = triton_cache
        return _triton(source, workload, launch_path, launch_text, arch, processes)
    if language == "torch" and workload is not None and workload.problem is not None:
        asked = execute_answer(source, workload, arch)
        return _answer(asked.build, ()) | {"requests": [asdict(request) for request in asked.requests]}
    if language == "torch":
        made = build_inline(source, arch, _build_options(options, include_dirs), _cache(cache_folder, cache_limit))
        return _answer(made.build, (Plan(0, made.launches),), binaries=made.binaries)
    kernels = find_kernels(text, source.path)
    plans, names = (), ()
    if workload is not None:
        launch = _launch(launch_text, launch_path)
        plan = plan_cuda(workload, [kernel.name for kernel in kernels], arch, launch)
        if plan.needs_extension:
            return _answer(_NOTHING, ()) | {"requests": [asdict(_request(path, text, launch or workload.launch))]}
        plans, names = plan.plans, plan.names
    built = build_cuda(source, arch, names, _build_options(options, include_dirs), _cache(cache_folder, cache_limit))
    return _answer(built, plans)


def build_requested(*, request: dict[str, Any], **given: Any) -> dict[str, Any] | str:
    """Build an extension that a candidate asks for, on the fast path; else the reason against that.

    It runs none of the file's code.
    """
    built = _build_fast(_REQUEST.validate_python(request), **given)
    return built if isinstance(built, str) else asdict(built)


def build_requested_fully(*, request: dict[str, Any], **given: Any) -> dict[str, Any]:
    """Build an extension that a candidate asks for as torch does; `reason` is why nothing faster will do.

    Takes minutes, where the rest takes less than a second.
    """
    return asdict(_build_fully(_REQUEST.validate_python(request), **given))


def _build_fast(
    request: ExtensionRequest,
    *,
    path: str,
    text: str,
    arch: str,
    options: list[str],
    include_dirs: list[str],
    cache_folder: str,
    cache_limit: int,
    **_: Any,
) -> ExtensionBuild | str:
    from kernel_lsp.runner.workers.inline import build_extension as build_fast

    origin = SourceFile(Path(path), text)
    return build_fast(request, arch, origin, Path(cache_folder), cache_limit, _build_options(options, include_dirs))


def _build_fully(
    request: ExtensionRequest,
    *,
    path: str,
    text: str,
    arch: str,
    options: list[str],
    include_dirs: list[str],
    extension_folder: str,
    reason: str,
    **_: Any,
) -> ExtensionBuild:
    from kernel_lsp.runner.workers.inline import build_fully

    origin = SourceFile(Path(path), text)
    return build_fully(request, arch, origin, Path(extension_folder), reason, _build_options(options, include_dirs))


def _request(path: str, text: str, launch: Callable[..., Any] | None) -> ExtensionRequest:
    """A CUDA file as an extension, with the host functions that `launch` calls bound where the file binds none."""
    assert launch is not None, "planning has called it"
    called = [name for name in find_host_functions(text) if name.rpartition("::")[2] in launch.__code__.co_names]
    return cuda_file_request(Path(path), text, called)


def _triton(
    source: SourceFile,
    workload: Workload | None,
    launch_path: str | None,
    launch_text: str | None,
    arch: str,
    processes: int,
) -> dict[str, Any]:
    from kernel_lsp.build.triton import build_triton

    if workload is None:
        return _answer(_NOTHING, ())

    def load() -> Callable[..., Any]:
        if workload.problem is not None:
            return load_answer(source, workload).launch(0)
        module = load_module(source.text, source.path)
        return bind_launch(module, source.path, launch_text, Path(launch_path) if launch_path else None)

    made = build_triton(source, workload, load, arch, processes)
    return _answer(made.build, made.plans, binaries=made.binaries)


def _launch(text: str | None, path: str | None) -> Callable[..., Any] | None:
    return load_module(text, Path(path)).launch if text and path else None


def _cache(folder: str, limit: int) -> BuildCache:
    return BuildCache(Path(folder), limit)


def _build_options(flags: list[str], include_dirs: list[str]) -> BuildOptions:
    return BuildOptions(tuple(flags), tuple(Path(folder) for folder in include_dirs))


@lru_cache(maxsize=8)
def _workload(text: str, path: str) -> Workload:
    return load_workload(text, Path(path))


def _answer(
    built: Build,
    plans: tuple[Plan, ...],
    binaries: tuple[Binary, ...] = (),
) -> dict[str, Any]:
    return {
        "build": asdict(built),
        "plans": [asdict(plan) for plan in plans],
        "binaries": [asdict(binary) for binary in binaries],
    }
