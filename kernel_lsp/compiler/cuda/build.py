"""Compiles a CUDA file: NVRTC on its device code, else nvcc on the device code, else nvcc on the whole file.

Worker processes only. The next way is tried when one failed for lack of a header or of host code, not when the user's
code is wrong: such an error is the same in every compiler, and the first one reports it soonest.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.cuda import wrong_parts
from kernel_lsp.compiler.cuda.absent_headers import is_absent, left_out, needs_random, substitutes, told, without_random
from kernel_lsp.compiler.cuda.barer import Slices, barer, by_nvcc
from kernel_lsp.compiler.cuda.diagnostics import Locate
from kernel_lsp.compiler.cuda.host_code import is_in
from kernel_lsp.compiler.cuda.host_needs import wants_host_code
from kernel_lsp.compiler.cuda.nvcc import compile_nvcc
from kernel_lsp.compiler.cuda.nvrtc import compile_nvrtc, include_folders, nvrtc_version
from kernel_lsp.compiler.headers.bare import accessors_of, bare_slices, cutting_rules
from kernel_lsp.compiler.headers.prelude import HOST_HEADERS, OWN_FILES, PRELUDE
from kernel_lsp.compiler.headers.user import (
    UserHeader,
    by_name,
    cub_header,
    headers_brought,
    includes_torch,
    of_libraries,
    sliced_headers,
    standard_headers,
    told_apart,
    user_headers,
    with_whole_paths,
)
from kernel_lsp.compiler.toolchain.file_cache import cache_key
from kernel_lsp.compiler.toolchain.target import target_of, wider_target
from kernel_lsp.compiler.toolchain.toolkit import torch_header_folders
from kernel_lsp.compiler.toolchain.tools import Tool, tool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.outline import open_braces
from kernel_lsp.source.slicing import device_slice, find_device_macros, same_code
from kernel_lsp.source.template_arguments import scopes_of, without_cast
from kernel_lsp.source.text import Lines

_DEFAULTS = BuildOptions()
_ON_DEVICE = re.compile(r"device-side kernel launch|requires separate compilation mode")


def build_cuda(
    source: SourceFile,
    arch: str,
    names: Sequence[str] = (),
    options: BuildOptions = _DEFAULTS,
    cache: BuildCache | None = None,
    *,
    spare_headers: bool = False,
    spare_parts: bool = True,
    whole_file: bool = True,
) -> Build:
    """Build the kernels of a CUDA file.

    Args:
        source: the file and its text; relative includes start from its folder.
        arch: `sm_90` and the like; the build is for `sm_90a` where the code, its headers or the options ask for that.
        names: kernel names used in launches; of a template only these instances are compiled.
        options: compiler options and include folders.
        cache: where the result is looked up and kept, failures included.
        spare_headers: whether to compile without headers that are nowhere, with a warning for each.
        spare_parts: whether, with `spare_headers`, what does not compile and is no kernel is left out too.
        whole_file: whether nvcc is to compile the whole file where all else failed.

    Returns:
        The first build that succeeded, else the last one that was tried.
    """
    headers = user_headers(source, options.include_dirs)
    options = options.for_code((source.text, *(header.text for header in headers)))
    asked = _asked(names) if spare_headers else frozenset[bytes]()
    sliced = _sliced(source.text, source.path.parent, headers, asked)
    nvcc = tool("nvcc")
    arch = target_of(arch, (sliced, *(header.text for header in headers)), options.targets)
    random = spare_headers and needs_random((sliced, *(header.text for header in headers)), include_folders)
    marks = ((spare_headers, f"spare {cutting_rules(wrong_parts.__file__)}"), (random, "no random"))
    marks += ((not spare_parts, "no parts"), (not whole_file, "in part"))
    made_of = (*_made_of(source, arch, names, options, headers, nvcc), *(mark for holds, mark in marks if holds))
    # A build of the device code alone is valid whatever the host code is; a failure or a build of the whole file is
    # not.
    by_slice, by_file = cache_key((*made_of, same_code(sliced))), cache_key((*made_of, "whole", source.text))
    if cache is not None and (known := cache.get(by_slice) or cache.get(by_file)):
        return known
    way = _without_random if random else _climb_down
    whole = told_apart(source.text, source.path.parent)
    climb = partial(way, source, sliced, whole, names=names, options=options, headers=headers, nvcc=nvcc)
    climb = partial(climb, spare_parts=spare_parts, whole_file=whole_file)
    build = climb(arch=arch, spare_headers=spare_headers)
    if build.binary is None and (wider := wider_target(arch, build.log)) is not None:
        build = climb(arch=wider, spare_headers=spare_headers)
    if spare_headers and build.binary is None and (launching := _launch_on_device(build)) is not None:
        again = climb(arch=arch, options=options.with_flags("-rdc=true"), spare_headers=True)
        build = replace(again, diagnostics=(*again.diagnostics, launching)) if again.binary is not None else again
    if cache is not None:
        cache.put(by_slice if build.binary is not None and build.way != "nvcc" else by_file, build)
    return build


def _launch_on_device(build: Build) -> Diagnostic | None:
    """Return a warning at the kernel launch for which device code is to be compiled so that it can be linked."""
    found = next((one for one in build.diagnostics if _ON_DEVICE.search(one.message)), None)
    words = "a kernel is launched on the device here: compiled with `-rdc=true`, and not linked"
    return replace(found, severity=Severity.WARNING, message=words) if found is not None else None


def _without_random(
    source: SourceFile,
    sliced: str,
    whole: str,
    *,
    names: Sequence[str],
    headers: Sequence[UserHeader],
    nvcc: Tool,
    **more: Any,
) -> Build:
    """Build a file without the kernels that use cuRAND's device functions, which are not here, by NVRTC alone.

    Where no kernel would be left, all are compiled, as some may do without; each that is not has an error.
    """
    cut: list[UserHeader] = []
    gone = frozenset[str]()
    for header in headers:
        text, gone = without_random(header.text, gone)
        cut.append(replace(header, text=text))
    rest, _ = without_random(whole, gone)
    kept, gone = without_random(sliced, gone)
    kernels = find_cuda_kernels(source.text, source.path)
    if gone.issuperset(kernel.name.rpartition("::")[2] for kernel in kernels):
        build = _climb_down(source, sliced, whole, names=names, headers=headers, nvcc=nvcc, **more)
        why = tuple(replace(one, severity=Severity.ERROR) for one in left_out(source, kernels, gone))
        return replace(build, diagnostics=why or build.diagnostics) if build.binary is None else build
    wanted = [name for name in names if without_cast(name).partition("<")[0].rpartition("::")[2] not in gone]
    build = _climb_down(source, kept, rest, names=wanted, headers=cut, nvcc=replace(nvcc, path=None), **more)
    return replace(build, diagnostics=(*build.diagnostics, *left_out(source, kernels, gone)))


def _climb_down(
    source: SourceFile,
    sliced: str,
    whole: str,
    *,
    arch: str,
    names: Sequence[str],
    options: BuildOptions,
    headers: Sequence[UserHeader],
    nvcc: Tool,
    spare_headers: bool,
    spare_parts: bool,
    whole_file: bool,
) -> Build:
    folders = (source.path.parent, *options.include_dirs)
    asked = _asked(names) if spare_headers else frozenset[bytes]()
    cut = sliced_headers(headers, sliced, asked)
    texts = (source.text, *(header.text for header in headers))
    brought = headers_brought(texts, names, (sliced, *(header.text for header in cut)))
    cub = cub_header(texts)
    absent = substitutes(source, headers, folders, include_folders) if spare_headers else ()
    looked_up = _looked_up(names, nested=spare_headers)

    def compile_slices(slices: Slices) -> Build:
        return compile_nvrtc(
            with_whole_paths(slices.text, source.path.parent),
            str(source.path),
            arch,
            names=names,
            options=(*options.all_flags, *(f"--pre-include={name}" for name in slices.brought)),
            include_dirs=folders,
            headers=(*by_name(slices.headers), *absent, *((cub,) if cub else ())),
            locate=_locator(source),
        )

    slices = Slices(f"{sliced}{looked_up}", cut, brought)
    build, own, kept = compile_slices(slices), _own(source, headers), None
    if spare_headers and is_in(build, own) and wants_host_code(build, own):
        text, bare_cut = bare_slices(source.path, f"{whole}{looked_up}", headers, include_folders(), asked)
        accessors = accessors_of((text, *(one.text for one in bare_cut)))
        bare = Slices(text, bare_cut, (*brought, *accessors))
        whole_headers = of_libraries(headers, source.path) if spare_parts else None
        build, slices, kept = barer(build, slices, bare, source.path, compile_slices, whole_headers)
    rest = partial(_with_nvcc, arch=arch, names=names, options=options, whole_file=whole_file)
    build = rest(build, source, slices, headers, absent, nvcc, spare_headers=spare_headers, spare_parts=spare_parts)
    if build.binary is None and kept is not None:
        build = kept
    return told(build, source, headers, absent) if absent else build


def _with_nvcc(
    build: Build,
    source: SourceFile,
    slices: Slices,
    headers: Sequence[UserHeader],
    absent: Sequence[UserHeader],
    nvcc: Tool,
    *,
    arch: str,
    names: Sequence[str],
    options: BuildOptions,
    spare_headers: bool,
    spare_parts: bool,
    whole_file: bool,
) -> Build:
    """Return a build by nvcc where NVRTC's failed for lack of host code, else that one.

    Args:
        build: NVRTC's.
        source: the file.
        slices: its device code.
        headers: those of the user's that it includes.
        absent: what stands for headers that are nowhere.
        nvcc: its path is None where there is none.
        arch: see `build_cuda`, as the others.
    """
    own, texts = _own(source, headers), (source.text, *(header.text for header in headers))
    # The slice has lost its includes; whole files may be of a package that is built with PyTorch.
    files = [str(OWN_FILES.get(name, name)) for name in (*slices.brought, *standard_headers(texts))]
    lost = [part for name in files for part in ("-include", name)]
    libraries = torch_header_folders() if includes_torch(texts) else ()
    whole = of_libraries(headers, source.path) if spare_headers else ()
    cut = tuple(one for one in (*slices.headers, *absent) if one.path not in whole)
    for way, extra, more_folders in (("nvcc-slice", lost, ()), ("nvcc", (), libraries)):
        if build.binary is not None or nvcc.path is None or not wants_host_code(build, own):
            break
        if way == "nvcc" and not whole_file:
            break
        compiled = partial(
            compile_nvcc,
            nvcc.path,
            path=source.path,
            arch=arch,
            way=way,
            names=names,
            options=(*options.all_flags, *extra),
            include_dirs=(*options.include_dirs, *more_folders),
            headers=headers,
            locate=_locator(source),
        )
        before = build
        if way == "nvcc":
            build = compiled(source=source.text)
        else:
            build = by_nvcc(slices, source.path, cut, compiled, spare_parts=spare_headers and spare_parts)
        if way == "nvcc" and is_absent(build):
            # What the device code lacks says more than that a library is not installed.
            build = replace(build, diagnostics=(*before.diagnostics, *build.diagnostics), log=before.log + build.log)
    return build


def _own(source: SourceFile, headers: Sequence[UserHeader]) -> dict[str, str]:
    """Return the texts of the user's files by their paths."""
    return {str(header.path): header.text for header in headers} | {str(source.path): source.text}


def build_included(
    source: SourceFile, before: SourceFile, arch: str, names: Sequence[str] = (), options: BuildOptions = _DEFAULTS
) -> Build:
    """Build the kernels of a header as they compile where another file includes it; by NVRTC alone.

    Args:
        source: the header.
        before: the text of that file above the include.
        arch: see `build_cuda`, as `names` and `options`.
    """
    above = told_apart(before.text, before.path.parent).encode() + b"\n"
    headers = user_headers(source, options.include_dirs)
    others = tuple(one for one in user_headers(before, options.include_dirs) if one not in headers)
    # Both are sliced together, since a slice keeps only those CUDA headers that its code uses.
    both = above.decode() + told_apart(source.text, source.path.parent)
    sliced = _sliced(both, source.path.parent, (*headers, *others), _asked(names)).encode()
    options = options.for_code((source.text, before.text, *(header.text for header in (*headers, *others))))
    arch = target_of(arch, (sliced.decode(), *(header.text for header in (*headers, *others))), options.targets)
    first, rest = sliced[: len(above)].decode(), sliced[len(above) :].decode()
    first, rest = with_whole_paths(first, before.path.parent), with_whole_paths(rest, source.path.parent)
    preface = UserHeader(f"{before.path.name} above {source.path.name}", before.path, first)
    still_open = open_braces(
        sliced[: len(above)]
    )  # a namespace or `extern "C"` that the other file closes further down
    folders = (source.path.parent, *options.include_dirs, before.path.parent)
    cut = sliced_headers((*headers, *others), sliced.decode(), _asked(names))
    texts = (source.text, before.text, *(header.text for header in (*headers, *others)))
    brought = headers_brought(texts, names, (sliced.decode(), *(header.text for header in cut)))
    cub = cub_header(texts)
    absent = {
        one.name: one
        for file in (source, before)
        for one in substitutes(file, (*headers, *others), folders, include_folders)
    }
    build = compile_nvrtc(
        rest + "\n" * bool(still_open) + "}" * still_open + _looked_up(names, nested=True),
        str(source.path),
        arch,
        names=names,
        options=(*options.all_flags, *(f"--pre-include={name}" for name in (*brought, preface.name))),
        include_dirs=folders,
        headers=(preface, *by_name(cut), *absent.values(), *((cub,) if cub else ())),
        locate=_locator(source),
    )
    return told(build, source, headers, tuple(absent.values())) if absent else build


def _sliced(text: str, folder: Path, headers: Sequence[UserHeader], asked: frozenset[bytes] = frozenset()) -> str:
    """Return the device code of a file in a folder that includes `headers`, and what instances are `asked` for with."""
    macros = find_device_macros(header.text for header in headers)
    return device_slice(told_apart(text, folder), device_macros=macros, asked=asked).text


def _asked(names: Sequence[str]) -> frozenset[bytes]:
    """Return the identifiers in the names of instances."""
    return frozenset(word.encode() for name in names if "<" in name for word in re.findall(r"[A-Za-z_]\w*", name))


def _looked_up(names: Sequence[str], *, nested: bool) -> str:
    """Return the text, for the end of a file, with which the arguments of instances are found where launches have
    them: in the namespaces of their kernels.
    """
    return "".join(f"\nusing namespace {scope};" for scope in scopes_of(names, nested=nested))


def _made_of(
    source: SourceFile,
    arch: str,
    names: Sequence[str],
    options: BuildOptions,
    headers: Sequence[UserHeader],
    nvcc: Tool,
) -> Iterator[str]:
    yield from (str(source.path), arch, nvrtc_version(), nvcc.version or "", PRELUDE, *HOST_HEADERS.values())
    for group in (names, options.all_flags, [str(folder) for folder in options.include_dirs]):
        yield str(len(group))
        yield from group
    for header in headers:
        yield from (header.name, str(header.path), header.text)


def _locator(source: SourceFile) -> Locate:
    """Return a function that gives the line, column, end line and end column of a kernel's name in `source`."""

    def locate(name: str) -> tuple[int, int, int, int] | None:
        lines = Lines(source.text.encode())
        for kernel in find_cuda_kernels(source.text, source.path):
            if name in (kernel.name, kernel.name.rpartition("::")[2]):
                return (*lines.position(kernel.name_span.start), *lines.position(kernel.name_span.end))
        return None

    return locate
