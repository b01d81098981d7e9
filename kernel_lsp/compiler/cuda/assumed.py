"""Builds a CUDA file that has no workload: its own host code gives template instances and block sizes.

Worker processes only. For a template whose launches do not name all arguments an instance is assumed: the first that
compiles.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest

from kernel_lsp.compiler.builds.assumed import NO_TIME, Assumed
from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.builds.merging import launches_of
from kernel_lsp.compiler.builds.plan import LaunchTrace
from kernel_lsp.compiler.cuda.absent_headers import LEFT_OUT
from kernel_lsp.compiler.cuda.trials import Choice, TemplateTrials, Way, made_in, names_in
from kernel_lsp.compiler.headers.user import UserHeader, of_libraries
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda_classes import Class, find_classes, members_asked
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.host_launches import HostLaunch, find_host_launches, find_named_instances
from kernel_lsp.source.host_macros import with_launches_of_macros
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.template_arguments import ATTEMPTS, instance_of, names_in_arguments, names_of, overload_of
from kernel_lsp.source.text import Lines

_SECONDS = 75.0  # of a build's deadline; templates not compiled by then are reported as out of time
_LEFT_OUT = "the compiler made nothing of it"
_LAUNCHER = re.compile(r"\btemplate\s*<[^;{}]*>\s*(?:(?:static|inline)\s+)*(?:void|cudaError_t)\s+(\w+)\s*\(")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|else|elif|endif)(.*?)[ \t]*$", re.MULTILINE)


def build_unlaunched(
    source: SourceFile,
    compile_names: Callable[[Sequence[str]], Build],
    including: Sequence[SourceFile] = (),
    headers: Sequence[UserHeader] = (),
) -> tuple[Build, LaunchTrace, tuple[Assumed, ...]]:
    """Compile all kernels of a CUDA file.

    Args:
        source: the file.
        compile_names: compiles the file with the template instances given by name.
        including: files that include it, if it is a header.
        headers: those that it includes, whose macros may launch kernels.

    Returns:
        The build; the launches in the file's host code, as far as they can be read; and, where instances had to
        be assumed, what was assumed of each kernel and which could not be compiled.
    """
    kernels = find_kernels(source.text, source.path)
    templates = [_short(kernel) for kernel in kernels if kernel.template_parameters]
    open_ones = [at for at, kernel in enumerate(kernels) if kernel.template_parameters]
    open_ones = [at for at in open_ones if not _is_instantiated(_short(kernels[at]), source.text)]
    texts = _host_texts(source, including, headers, templates)
    launched = [launch for text in texts for launch in find_host_launches(text)]
    named = [instance for text in texts for instance in find_named_instances(text, templates)]
    written = _in_full([*launched, *named], kernels)
    libraries = of_libraries(headers, source.path)
    own = (header.text for header in headers if header.path not in libraries)
    classes = [one for text in (source.text, *own) for one in find_classes(text)]
    ways = {at: _ways(kernels[at], written, tuple(classes), source) for at in open_ones}
    alike = Counter(kernel.name for kernel in kernels)
    for at in (at for at in open_ones if alike[kernels[at].name] > 1):
        told = [replace(way, names=tuple(overload_of(kernels[at], name) for name in way.names)) for way in ways[at]]
        ways[at] = list(dict.fromkeys(told))
    trials = TemplateTrials(source, kernels, ways, compile_names)
    deadline = time.perf_counter() + _SECONDS
    build = trials.together(deadline)
    if build.binary is None and names_in(trials.chosen):
        if trials.plain().binary is None:
            return trials.plain(), LaunchTrace(0, ()), ()
        trials.one_by_one(deadline)
        build = compile_names(names) if (names := names_in(trials.chosen)) else trials.plain()
        build = trials.plain() if build.binary is None else build
    chosen = trials.chosen
    facts = build.binary.kernels if build.binary else ()
    launches = tuple(launch for kernel in facts for launch in launches_of(kernel, written))
    made = made_in(build)
    for at, kernel in enumerate(kernels):
        if why := _not_compiled(source, kernel, build):
            chosen[at] = (None, why)
        elif at not in chosen and _short(kernel) not in made:
            chosen[at] = (None, _left_out(source, kernel))
    assumed = tuple(_assumed(source, kernel, chosen.get(at)) for at, kernel in enumerate(kernels))
    needed = build.binary is not None and any(one.types or not one.compiled for one in assumed)
    return build, LaunchTrace(0, launches), assumed if needed else ()


def _host_texts(
    source: SourceFile, including: Sequence[SourceFile], headers: Sequence[UserHeader], templates: Sequence[str]
) -> tuple[str, ...]:
    """Return the texts whose host code launches kernels: the file's, and after it each that includes it."""
    launchers = [name for name in _LAUNCHER.findall(source.text) if name not in templates]
    known = [header.text for header in headers]
    own = with_launches_of_macros(source.text, known, (*templates, *launchers))
    others = (with_launches_of_macros(one.text, [*known, source.text], (*templates, *launchers)) for one in including)
    return own, *(f"{own}\n{other}" for other in others)


def _short(kernel: Kernel) -> str:
    return kernel.name.rpartition("::")[2]


def _is_instantiated(template: str, text: str) -> bool:
    """Return True if a text asks for an instance by itself: `template __global__ void k<float>(float*);`."""
    return re.search(rf"\btemplate\s+(?!<)[^;{{}}<]*\b{template}\s*<", text) is not None


def _ways(kernel: Kernel, written: Sequence[HostLaunch], classes: tuple[Class, ...], source: SourceFile) -> list[Way]:
    """Return the ways to compile a template, likeliest first: all instances that are launched, else assumed ones."""
    mine = [one for one in written if one.kernel.partition("<")[0] == kernel.name]
    told = tuple(dict.fromkeys(one.kernel for one in mine if one.instance))
    best = max(mine, key=lambda one: (sum(a is not None for a in _told(kernel, one)), -len(one.open)), default=None)
    text = source.text.encode()[kernel.span.start : kernel.span.end].decode()
    asked = {name: members_asked(name, text) for name in names_of(kernel)}
    sources = [(_told(kernel, best), dict(best.open)), (best.arguments, {}), _doubted(kernel, best)] if best else []
    guesses = [
        instance_of(kernel, given, attempt, classes, unknown, asked)
        for given, unknown in [*sources, ((), {})]
        for attempt in range(ATTEMPTS)
    ]
    found = [Way(told)] if told else []
    return list(dict.fromkeys([*found, *(Way((one[0],), one[1]) for one in guesses if one is not None)]))


def _doubted(kernel: Kernel, launch: HostLaunch) -> tuple[tuple[str | None, ...], dict[str, str]]:
    """Return the arguments of a launch without those that are a name, and the names in the others with their types: a
    macro that is not here may have defined them.
    """
    told = _told(kernel, launch)
    names = names_in_arguments(told)
    kept = tuple(None if one in names else one for one in told)
    open_names = {
        name: "typename" if declared.startswith(("typename", "class")) else "int"
        for one, declared in zip(kept, kernel.template_parameters, strict=False)
        for name in names_in_arguments([one])
    }
    return kept, open_names


def _told(kernel: Kernel, launch: HostLaunch) -> tuple[str | None, ...]:
    """Return the template arguments of a launch: those that can be read, types, and what holds open names."""
    names, found = [name for name, _ in launch.open], list[str | None]()
    for given, partly, declared in zip_longest(launch.arguments, launch.partly, kernel.template_parameters):
        is_type = declared is not None and declared.startswith(("typename", "class"))
        holds = partly is not None and (is_type or any(re.search(rf"\b{name}\b", partly) for name in names))
        found.append(partly if given is None and holds else given)
    return tuple(found)


def _in_full(written: Sequence[HostLaunch], kernels: Sequence[Kernel]) -> tuple[HostLaunch, ...]:
    """Return the launches with each kernel's full name, since host code may leave out namespaces."""
    names = {kernel.name.rpartition("::")[2]: kernel.name for kernel in kernels}
    found: list[HostLaunch] = []
    for one in written:
        plain, bracket, rest = one.kernel.partition("<")
        plain = plain.strip()
        found.append(replace(one, kernel=names.get(plain.rpartition("::")[2], plain) + bracket + rest))
    return tuple(found)


def _not_compiled(source: SourceFile, kernel: Kernel, build: Build) -> str:
    """Return why the build says that it was made without a kernel; empty if it says nothing."""
    line = Lines(source.text.encode()).position(kernel.name_span.start)[0]
    said = (one.message for one in build.diagnostics if (one.path, one.line) == (str(source.path), line))
    return next((message for message in said if message.startswith(LEFT_OUT)), "").removeprefix(LEFT_OUT).strip()


def _left_out(source: SourceFile, kernel: Kernel) -> str:
    """Return why the compiler made nothing of a kernel, with the innermost condition around it if there is one."""
    data = source.text.encode()
    above: list[tuple[int, str]] = []
    for number, line in enumerate(data[: kernel.name_span.start].decode().splitlines(), start=1):
        if (found := _CONDITION.match(line)) is not None:
            if found[1] != "if":
                above = above[:-1]
            if found[1] != "endif":
                above.append((number, line.strip()))
    if not above:
        return _LEFT_OUT
    number, written = above[-1]
    return f"{_LEFT_OUT}: `{written}` in line {number} leaves it out; `build.options` can define what it asks for"


def _assumed(source: SourceFile, kernel: Kernel, choice: Choice | None) -> Assumed:
    line = Lines(source.text.encode()).position(kernel.name_span.start)[0]
    way, problem = choice or (Way(()), "")
    return Assumed(kernel.name, line, way.types if way else (), way is not None, problem, problem == NO_TIME)
