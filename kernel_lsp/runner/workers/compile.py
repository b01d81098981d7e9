"""The compile worker: compiles CUDA files that no workload launches and our own kernels; it runs no user's code.

It needs NVRTC alone, so that the first facts of a session do not wait for torch to be imported, and our kernels are
built meanwhile. Each compilation of a user's file is a process of its own, since NVRTC crashes on some mistakes, as on
an unknown type among a template's parameters.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import structs

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.cuda.assumed import build_unlaunched
from kernel_lsp.compiler.cuda.build import build_cuda, build_included
from kernel_lsp.compiler.cuda.host_needs import is_hopeless
from kernel_lsp.compiler.cuda.instances import with_few_instances
from kernel_lsp.compiler.cuda.wrong_kernels import without_wrong_kernels
from kernel_lsp.compiler.headers.definitions import definitions
from kernel_lsp.compiler.headers.user import user_headers
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.compiler.triton.forks import in_forks
from kernel_lsp.runner.messages.build import BuildOwnKernels, CandidateBuild, CompileAlone, CompileRole
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.template_arguments import usual_number

_DEVICE = Path(__file__).parents[2] / "device"
_UNDEFINED = re.compile(r'identifier "([A-Z_]*[A-Z][A-Z0-9_]*)" is undefined')
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if\w*\b(.*)", re.MULTILINE)
_SECONDS_FOR_MORE = 30.0  # after which nothing is compiled for the sake of some kernels
_SECONDS_FOR_ANY = 60.0  # after which nothing is compiled for a file of which nothing compiled yet
_SECONDS = 600  # of a compilation; whoever asks ends it sooner


def methods() -> CompileRole:
    """Return the object that answers this role's requests."""
    return _Compiler()


class _Compiler:
    """Answers compile requests; NVRTC stays loaded between them."""

    def compile_alone(self, request: CompileAlone) -> CandidateBuild:
        """Compile all kernels of a file, as it stands or, if it is a header, as one of its includers has it.

        Where some do not compile, macros of the project's build files may help, else usual values of macros that
        nothing defines, whose errors stay; a warning says which.
        """
        if (quick := _as_built(request)) is not None:
            return quick
        start = time.perf_counter()
        deadline = start + _SECONDS_FOR_MORE
        made = _with_few_errors(request, deadline)
        late = deadline if _count(made) else start + _SECONDS_FOR_ANY
        if _is_whole(made) or time.perf_counter() > late:
            return made
        made = _with_macros(request, made, _of_build_files(request, made), deadline)
        if _is_whole(made) or time.perf_counter() > deadline:
            return made
        errors = tuple(one for one in made.build.diagnostics if one.severity is Severity.ERROR)
        return _with_macros(request, made, _assumed_macros(request, made), deadline, errors)

    def build_own_kernels(self, request: BuildOwnKernels) -> Binary:
        """Build kernels of this program."""
        path = _DEVICE / f"{request.name}.cu"
        built = build_cuda(SourceFile(path, path.read_text()), request.arch, cache=request.cache.opened())
        assert built.binary is not None, built.log
        return built.binary


def _as_built(request: CompileAlone) -> CandidateBuild | None:
    """Return a build of all kernels with the macros that the project's build files define, where conditions ask for
    them, no kernel compiles without, and the device code alone suffices. It takes seconds; nvcc on a whole file, half a
    minute.
    """
    headers = user_headers(request.kernel, request.options.include_dirs)
    conditions = " ".join(one for file in (request.kernel, *headers) for one in _CONDITION.findall(file.text))
    flags = {
        flag: place
        for flag, place in _of_build_files(request, None).items()
        if re.search(rf"\b{flag[2:].partition('=')[0]}\b", conditions)
    }
    source, deadline = request.kernel, time.perf_counter() + _SECONDS_FOR_MORE
    if not flags or _unlaunched(request, source, deadline, whole_file=False).build.binary is not None:
        return None
    asked = structs.replace(request, options=request.options.with_flags(*flags))
    made = _unlaunched(asked, source, deadline, whole_file=False)
    return _noted(request, made, flags) if _is_whole(made) else None


def _of_build_files(request: CompileAlone, made: CandidateBuild | None) -> dict[str, str]:
    """Return macros that the project's build files define, as flags, each with its place: those that errors name, else
    all that the code mentions.
    """
    source, said = request.kernel, _said_of(made) if made else ""
    texts = (source.text, *(header.text for header in user_headers(source, request.options.include_dirs)))
    every = definitions(source.path, texts, request.arch)
    defined = [one for one in every if re.search(rf"\b{one.name}\b", said)] or every
    return {one.flag: f"of {one.path.name}, line {one.line}" for one in defined}


def _assumed_macros(request: CompileAlone, made: CandidateBuild) -> dict[str, str]:
    """Return the macros that errors say to be undefined, as flags with usual values."""
    names = [
        name for name in _UNDEFINED.findall(_said_of(made)) if not re.search(rf"\b{name}\s*\(", request.kernel.text)
    ]
    return {f"-D{name}={usual_number(name)}": "assumed: nothing defines it" for name in dict.fromkeys(names)}


def _with_macros(
    request: CompileAlone,
    made: CandidateBuild,
    flags: dict[str, str],
    deadline: float,
    errors: tuple[Diagnostic, ...] = (),
) -> CandidateBuild:
    """Return a build with macros, which a warning names, and with `errors`, if it has more kernels than `made`."""
    if not flags:
        return made
    options = request.options.with_flags(*flags)
    other = _with_few_errors(structs.replace(request, options=options), deadline)
    if _count(other) <= _count(made):
        return made
    return _noted(request, other, flags, errors)


def _noted(
    request: CompileAlone, made: CandidateBuild, flags: dict[str, str], errors: tuple[Diagnostic, ...] = ()
) -> CandidateBuild:
    """Return a build with `errors` and a warning that names the macros it was made with."""
    words = ", ".join(f"`{flag}` ({place})" for flag, place in flags.items())
    note = Diagnostic(str(request.kernel.path), 1, 1, 1, 1, Severity.WARNING, f"compiled with {words}")
    return replace(made, build=replace(made.build, diagnostics=(*errors, *made.build.diagnostics, note)))


def _said_of(made: CandidateBuild) -> str:
    return " ".join((*(one.message for one in made.build.diagnostics), *(one.problem for one in made.assumed)))


def _with_few_errors(request: CompileAlone, deadline: float) -> CandidateBuild:
    """Compile all kernels of a file but those with errors, which are among the build's diagnostics.

    After `deadline`, on `time.perf_counter`, no further compilation begins.
    """
    source, notes = with_few_instances(request.kernel)
    whole = made = _unlaunched(request, source, deadline)
    while made.build.binary is None and time.perf_counter() < deadline:
        if (rest := without_wrong_kernels(source, made.build)) is None:
            break
        notes, source = (*notes, *made.build.diagnostics), rest
        made = _unlaunched(request, source, deadline)
    made = whole if made.build.binary is None else made
    build = replace(made.build, diagnostics=tuple(dict.fromkeys((*made.build.diagnostics, *notes))))
    return replace(made, build=build)


def _is_whole(made: CandidateBuild) -> bool:
    """Return True if all kernels of a file were compiled."""
    return made.build.binary is not None and all(one.compiled for one in made.assumed)


def _count(made: CandidateBuild) -> int:
    return len(made.build.binary.kernels) if made.build.binary else 0


def _unlaunched(
    request: CompileAlone, source: SourceFile, deadline: float, *, whole_file: bool = True
) -> CandidateBuild:
    """Compile all kernels of a text, which may be a part of the file that is asked for.

    After `deadline` some of them suffice, and parts that do not compile are no longer left out. With `whole_file` nvcc
    compiles the whole file where all else fails.
    """
    arch, options = request.arch, request.options

    headers = user_headers(source, options.include_dirs)
    texts = {str(file.path): file.text for file in (*headers, source)}

    def compile_names(names: Sequence[str]) -> Build:
        nonlocal whole_file
        cache = request.cache.opened()
        spare_parts = time.perf_counter() < deadline
        more = {"spare_headers": True, "spare_parts": spare_parts, "whole_file": whole_file}
        build = _apart(partial(build_cuda, source, arch, names, options, cache, **more), source)
        # With PyTorch's headers nvcc takes half a minute, each time to the same end.
        whole_file = whole_file and not is_hopeless(build, texts)
        return build

    build, plan, assumed = build_unlaunched(source, compile_names, request.including, headers)
    made = CandidateBuild(build, (plan,), assumed=assumed)
    late = made.build.binary is not None and time.perf_counter() > deadline
    if _is_whole(made) or late or (before := request.before) is None:
        return made

    def compile_included(names: Sequence[str]) -> Build:
        return _apart(partial(build_included, source, before, arch, names, options), source)

    build, plan, assumed = build_unlaunched(source, compile_included, request.including, headers)
    included = CandidateBuild(build, (plan,), assumed=assumed)
    return included if made.build.binary is None or _count(included) > _count(made) else made


def _apart(compiles: Callable[[], Build], source: SourceFile) -> Build:
    """Return a build that a process of its own makes, or one that failed where the compiler crashed in it."""
    (made,) = in_forks([compiles], 1, _SECONDS, time.perf_counter() + _SECONDS)
    crashed = Diagnostic(str(source.path), 1, 1, 1, 1, Severity.ERROR, "the compiler crashed on this file")
    return made or Build(None, (crashed,), "nvrtc", 0.0)
