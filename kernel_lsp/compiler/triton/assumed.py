"""Compiles the kernels of a Triton file that no workload launches, with types that are known or assumed.

Worker processes only. Each kernel is launched into a recorder with arguments made up by `parameter_types`; only the
parts of the file that the kernels need are executed. Autotuned kernels are compiled with the first configuration that
works.
"""

import ast
import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import triton.language as tl
from triton.compiler.errors import CompilationError, UnsupportedLanguageConstruct
from triton.runtime.jit import JITFunction, KernelParam

from kernel_lsp.compiler.builds.assumed import NO_TIME, Assumed
from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.plan import LaunchTrace
from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.compiler.ptx.ptxas import PtxasUsage
from kernel_lsp.compiler.triton.arguments import gluon_argument, triton_argument
from kernel_lsp.compiler.triton.asserted import meeting
from kernel_lsp.compiler.triton.build import Recorder, TritonBuild, diagnose, log_of, merged
from kernel_lsp.compiler.triton.driver import received_by
from kernel_lsp.compiler.triton.forks import in_forks
from kernel_lsp.compiler.triton.parameter_types import (
    ATTEMPTS,
    Attempt,
    CompiledParameter,
    Declared,
    From,
    is_assigned,
    is_block,
    literal,
    parameters_of,
)
from kernel_lsp.compiler.triton.partial_module import PartialModule
from kernel_lsp.compiler.triton.precompile import Usage
from kernel_lsp.compiler.triton.renamed import advice_on, advice_on_keywords
from kernel_lsp.compiler.triton.unknown import Unknown
from kernel_lsp.device.device import Device
from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.python import python_ast
from kernel_lsp.source.text import Lines
from kernel_lsp.source.triton_calls import LaunchArguments, launches_in
from kernel_lsp.source.triton_uses import Uses, uses_in
from kernel_lsp.workload.execute import blame

_SECONDS = 75.0  # of a build's deadline; kernels not compiled by then are reported as out of time
_WARPS = 4  # of a block, if nothing says how many
_ATTEMPT_SECONDS = 10  # of processor time; longer compilations are of sizes that nobody uses
_KILLED = "`ptxas` failed with error code -9"  # for the time it took
_OF_TYPES = re.compile(r"conditionals can only accept|Boolean value of Tensor|implemented on type")  # of some only


@dataclass(frozen=True)
class _Setting:
    """A configuration of an autotuner.

    Attributes:
        values: constants and options.
        hook: called with all arguments before a launch, as the autotuner does; it may set descriptors' blocks.
    """

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    hook: Callable[[dict[str, Any]], object] | None = None


@dataclass
class _Loaded:
    """A kernel of the file, loaded for Triton.

    Attributes:
        module: the file.
        kernel: as found in the text.
        line: of its name.
        function: the JIT function; None if it could not be loaded.
        settings: the configurations of its autotuner, in the order of trial.
        heuristics: functions of its decorators that compute constants from arguments.
        error: why it could not be loaded.
        without: why it was loaded without its decorators; empty if it was not.
        guesses: `if` branches guessed while loading it.
    """

    module: PartialModule
    kernel: Kernel
    line: int
    function: JITFunction[Any] | None = None
    settings: list["_Setting"] = field(default_factory=lambda: [_Setting()])
    heuristics: dict[str, Any] = field(default_factory=dict[str, Any])
    error: WorkloadError | None = None
    without: str = ""
    guesses: tuple[str, ...] = ()

    @cached_property
    def tree(self) -> ast.FunctionDef:
        """Return the function's syntax tree."""
        return _tree_of(self.function)

    @cached_property
    def uses(self) -> Uses:
        """Return how it uses its parameters."""
        return uses_in(self.tree, self._find, self._constant)

    @cached_property
    def blocks(self) -> int:
        """Return the number of its constants that are block lengths."""
        assert self.function is not None
        return sum(p.is_constexpr and not p.has_default and is_block(p.name, self.uses) for p in self.function.params)

    def _find(self, name: str) -> ast.FunctionDef | None:
        value = self._named(name)
        own = isinstance(value, JITFunction) and not value.module.startswith("triton.")
        return _tree_of(value) if own else None

    def _constant(self, name: str) -> str | int | None:
        value = self._named(name) if name else None
        value = value.value if isinstance(value, tl.constexpr) else value
        return value if isinstance(value, (str, int)) else None

    def _named(self, name: str) -> Any:
        """Return the value of a dotted name among the globals of the function; None if there is none."""
        assert self.function is not None
        first, *rest = name.split(".")
        value: Any = self.function.fn.__globals__.get(first)
        for part in rest:
            value = getattr(value, part, None)
        return value


def build_assumed(source: SourceFile, device: Device, processes: int) -> tuple[TritonBuild, tuple[Assumed, ...]]:
    """Compile the kernels of a Triton file that has no workload.

    Args:
        source: the file.
        device: the GPU that the code is told to run on, and compiled for.
        processes: how many may compile side by side.

    Returns:
        The build, whose diagnostics are errors that hold for any types; and the assumptions for each kernel.
    """
    start = time.perf_counter()
    recorder = Recorder(device.arch)
    with fake_gpu(device), received_by(recorder, device), recorder.hearing():
        try:
            module = PartialModule(source.path, source.text)
        except WorkloadError as error:
            said = diagnose(error, source)
            return TritonBuild(Build(None, (said,) if said else (), "triton", 0.0), (), ()), ()
        loaded = [_load(module, kernel, source) for kernel in find_kernels(source.text, source.path)]
        launches = _launches(source, loaded)

        found = _compile_all(loaded, launches, source, recorder, processes)
    errors = tuple(dict.fromkeys(tried.error for tried in found if tried.error is not None))
    imports = tuple(_missing(source, line, name) for line, name in module.missing_imports())
    binaries = tuple(recorder.binaries())
    log = "\n\n".join(tried.log for tried in found if tried.log)
    binary = merged(binaries) if binaries else None  # an error in one kernel does not cost the others their facts
    build = Build(binary, (*errors, *imports), "triton", time.perf_counter() - start, log=log)
    assumed = tuple(tried.assumed for tried in found)
    return TritonBuild(build, (LaunchTrace(0, tuple(recorder.launches)),), binaries if binary else ()), assumed


@dataclass(frozen=True)
class _Tried:
    """The result of trying to compile a kernel.

    Attributes:
        assumed: the types it was compiled for.
        error: an error that holds for any types.
        log: the compiler's output.
        usage: the output of ptxas.
    """

    assumed: Assumed
    error: Diagnostic | None = None
    log: str = ""
    usage: Usage = field(default_factory=dict[bytes, PtxasUsage])


def _load(module: PartialModule, kernel: Kernel, source: SourceFile) -> _Loaded:
    line = Lines(source.text.encode()).position(kernel.name_span.start)[0]
    found = _Loaded(module, kernel, line)
    try:
        if not module.is_bound(kernel.name):
            raise WorkloadError("it is defined inside of a function or class", source.path, line)
        try:
            value = module.value(kernel.name)
            if isinstance(value, Unknown):
                raise value.origin
        except WorkloadError as error:
            try:
                value = module.undecorated(kernel.name)
            except WorkloadError:
                raise error from None
            found.without = f"without its decorators, because {_where(error, source)}"
        with blame(source.path, "its decorators cannot be read"):
            _unwrap(value, found)
        found.guesses = module.guesses
        if found.function is None:
            raise WorkloadError(f"what its decorators make of it is not a Triton kernel ({type(value).__name__})", None)
    except (WorkloadError, AttributeError) as error:
        found.error = error if isinstance(error, WorkloadError) else WorkloadError(str(error), source.path, line)
    return found


def _unwrap(value: Any, found: _Loaded) -> None:
    """Remove the autotuner, heuristics and other wrappers round the function that Triton compiles."""
    while not isinstance(value, JITFunction):
        if (configs := getattr(value, "configs", None)) and hasattr(configs[0], "all_kwargs"):
            found.settings = [_Setting(_without_none(one.all_kwargs()), one.pre_hook) for one in configs]
        if isinstance(heuristics := getattr(value, "values", None), Mapping):
            found.heuristics |= heuristics
        value = getattr(value, "fn", None)
        if value is None:
            return
    found.function = value


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _tree_of(function: Any) -> ast.FunctionDef:
    tree = function.parse().body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree


def _launches(source: SourceFile, loaded: list[_Loaded]) -> dict[str, LaunchArguments]:
    parameters = {one.kernel.name: one.function.arg_names for one in loaded if one.function is not None}
    return launches_in(python_ast(source.text), parameters)


def _compile_all(
    loaded: list[_Loaded],
    launches: Mapping[str, LaunchArguments],
    source: SourceFile,
    recorder: Recorder,
    processes: int,
) -> list[_Tried]:
    """Compile kernels side by side, one attempt after another until one works.

    Each attempt is a process of its own, as the compiler may end it or hang. Compiled kernels are afterwards launched
    into the recorder, from Triton's cache. If no attempt works, the first error is reported.
    """
    found: dict[int, _Tried] = {
        at: _Tried(Assumed(one.kernel.name, one.line, (), False, _where(one.error, source)))
        for at, one in enumerate(loaded)
        if one.error is not None
    }
    open_ones = [at for at in range(len(loaded)) if at not in found]
    deadline, endless = time.perf_counter() + _SECONDS, set[int]()
    all_ways = {at: _ways(loaded[at]) for at in open_ones}
    for number in range(max(map(len, all_ways.values()), default=0)):
        ways = {at: all_ways[at][number] for at in open_ones if number < len(all_ways[at])}
        ways = {at: way for at, way in ways.items() if at not in endless or way[0].tile < ATTEMPTS[0].tile}

        def tried(at: int, attempt: Attempt, setting: _Setting) -> _Tried:
            one = loaded[at]
            done = _try(one, launches.get(one.kernel.name, LaunchArguments()), source, attempt, setting)
            return replace(done, usage=recorder.heard())

        tasks = [partial(tried, at, *way) for at, way in ways.items()]
        for at, answer in zip(ways, in_forks(tasks, processes, _ATTEMPT_SECONDS, deadline), strict=True):
            why = NO_TIME if time.perf_counter() > deadline else "the compiler came to no end"
            slow = Assumed(loaded[at].kernel.name, loaded[at].line, (), False, why)
            answer = None if answer is not None and _KILLED in answer.assumed.problem else answer
            found[at] = _better(found.get(at), answer or _Tried(slow))
            recorder.known |= found[at].usage
            if found[at].assumed.compiled:
                with contextlib.suppress(Exception):
                    one = loaded[at]
                    _launch(one, launches.get(one.kernel.name, LaunchArguments()), *ways[at])
            elif answer is None:
                endless.add(at)
        open_ones = [at for at in open_ones if not (found[at].assumed.compiled or found[at].error)]
        if time.perf_counter() > deadline:
            found |= {at: replace(found[at], assumed=replace(found[at].assumed, hurried=True)) for at in open_ones}
            break
    return [found[at] for at in range(len(loaded))]


def _better(before: _Tried | None, now: _Tried) -> _Tried:
    """Return the attempt that worked or found a certain error, else the first with a message."""
    return now if before is None or now.assumed.compiled or now.error or not before.assumed.types else before


def _try(one: _Loaded, launch: LaunchArguments, source: SourceFile, attempt: Attempt, setting: _Setting) -> _Tried:
    """Try to compile a kernel once."""
    types: tuple[str, ...] = ()
    try:
        with blame(source.path, "it does not compile"):
            if (old := advice_on_keywords(one.tree)) and (keywords := one.tree.args.kwarg) is not None:
                raise WorkloadError(old, source.path, one.line + keywords.lineno - 1)
            types = (*((one.without,) if one.without else ()), *one.guesses)
            types += tuple(p.text for p in _parameters(one, launch, attempt, setting) if p.known is From.GUESS)
            _launch(one, launch, attempt, setting)
        return _Tried(Assumed(one.kernel.name, one.line, types, True))
    except WorkloadError as error:
        error.line = error.line or one.line
        said = diagnose(error, source)
        message = said.message if said else error.message
        if said is not None and _is_certain(error, one):
            return _Tried(Assumed(one.kernel.name, one.line, types, False, message), said, log_of(error, source))
        words = f"line {said.line}: {message}" if said else message
        failed = Assumed(one.kernel.name, one.line, types, False, words.splitlines()[0])
        return _Tried(failed, log=log_of(error, source))


def _ways(one: _Loaded) -> list[tuple[Attempt, _Setting]]:
    """Return the combinations to try: all attempts with the first configuration, then the first attempt with others."""
    others = [*one.settings[1:3], *one.settings[3:][-1:]]
    return [*((attempt, one.settings[0]) for attempt in ATTEMPTS), *((ATTEMPTS[0], setting) for setting in others)]


def _parameters(one: _Loaded, launch: LaunchArguments, attempt: Attempt, setting: _Setting) -> list[CompiledParameter]:
    assert one.function is not None
    declared = [
        Declared(
            parameter.name,
            parameter.is_constexpr,
            parameter.annotation_type or "",
            literal(_default_of(parameter)),
            parameter.has_default,
        )
        for parameter in one.function.params
        if parameter.name not in setting.values and parameter.name not in one.heuristics
        # A type or function that is a default is filled in by Triton.
        if _default_of(parameter) is literal(_default_of(parameter)) or parameter.name in launch.given
    ]
    found = parameters_of(declared, one.blocks, one.uses, launch.given, attempt)
    return meeting(one.uses.asserted, found, setting.values)


def _default_of(parameter: KernelParam) -> Any:
    """Return the default of a parameter; None if it has none."""
    return getattr(parameter.default, "value", parameter.default) if parameter.has_default else None


def _launch(one: _Loaded, launch: LaunchArguments, attempt: Attempt, setting: _Setting) -> None:
    """Launch a kernel into the recorder."""
    assert one.function is not None
    options = {name: value for name, value in launch.options.items() if name not in setting.values}
    warps = int(setting.values.get("num_warps", options.get("num_warps", _WARPS)))
    made = gluon_argument if one.function.is_gluon() else triton_argument
    arguments = {p.name: made(p, warps) for p in _parameters(one, launch, attempt, setting)}
    arguments |= setting.values
    for name, compute in one.heuristics.items():
        try:
            arguments[name] = compute(dict(arguments))
        except Exception:  # it needs values that are not known
            (constant,) = parameters_of([Declared(name, True)], one.blocks, one.uses, launch.given, attempt)
            arguments[name] = made(constant, warps)
    if setting.hook is not None:
        setting.hook(arguments)
    one.function[(1, 1, 1)](**arguments, **{name: v for name, v in options.items() if name not in arguments})


def _is_certain(error: WorkloadError, one: _Loaded) -> bool:
    """Return True if Triton's error holds for any types: an unknown name, or a construct that Triton lacks."""
    cause: BaseException | None = error.__cause__
    if one.tree.args.kwarg is not None:
        return True
    while cause is not None:
        text = str(getattr(cause, "error_message", None) or cause)
        if isinstance(cause, UnsupportedLanguageConstruct):
            return _OF_TYPES.search(text) is None
        if isinstance(cause, NameError) or (isinstance(cause, CompilationError) and "NameError(" in text):
            name = text.partition(" is not defined")[0].rpartition("(")[2].strip("'\" ")
            return not is_assigned(one.tree, name) and not one.module.is_bound_anywhere(name)
        if ("has no attribute" in text and "module '" in text) or advice_on(text):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _where(error: WorkloadError, source: SourceFile) -> str:
    place = "" if error.line is None else f"line {error.line}: "
    if error.path is not None and error.path != source.path:
        place = f"{error.path.name}, {place or ''}".rstrip(", ") + (" " if place else ": ")
    return f"{place}{error.message}"


def _missing(source: SourceFile, line: int, name: str) -> Diagnostic:
    message = f"there is no module `{name}` here, so the file cannot be imported"
    text = source.text.splitlines()[line - 1].encode()
    return Diagnostic(str(source.path), line, 1, line, len(text) + 1, Severity.WARNING, message)
