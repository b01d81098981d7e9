"""Compiles a Triton file and records its launches, for a named architecture and without a GPU.

Worker processes only: it runs the user's code. A fake driver makes Triton believe in a GPU; every launch compiles as it
would there, into the cache at TRITON_CACHE_DIR, and is recorded instead of executed. Autotuned kernels compile all
their configurations. Works with Triton 3.6 and 3.7.
"""

import ast
import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from triton import knobs
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources, PTXASError

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.plan import Constant, Launch, LaunchTrace
from kernel_lsp.compiler.fakes.gpu import ShapesOnly, fake_gpu
from kernel_lsp.compiler.fakes.shortfall import shortfall
from kernel_lsp.compiler.machine_code.binary import Binary, KernelFacts
from kernel_lsp.compiler.machine_code.cubin import read_cubin
from kernel_lsp.compiler.ptx.ptxas import PtxasUsage, parse_ptxas_usage, with_spills
from kernel_lsp.compiler.triton.driver import received_by
from kernel_lsp.compiler.triton.misalignment import misalignments
from kernel_lsp.compiler.triton.precompile import precompile
from kernel_lsp.compiler.triton.ptxas_words import words_of_ptxas
from kernel_lsp.compiler.triton.renamed import advice_on
from kernel_lsp.compiler.triton.since import ArchitectureError
from kernel_lsp.device.architectures import arch_number
from kernel_lsp.device.device import Device
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.execute import blame
from kernel_lsp.workload.workload import Workload, describe_case, file_of, make_inputs

_REPR = re.compile(r"^\w+\(([\"'])(.*)\1\)$", re.DOTALL)  # Triton quotes Python's errors as `NameError('...')`
_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TritonBuild:
    """The build of a Triton file.

    Attributes:
        build: its `binary` holds the facts of every kernel compiled, one for each set of constants, types and options,
            and the cubin and PTX of the first launch. Entries past the first of a name are marked `softmax#2`.
        plans: the launches of each case; an autotuned launch with the first configuration that works.
        binaries: each compilation by itself, in the order of `build.binary.kernels`.
        launched: each `JITFunction` that was launched, once.
    """

    build: Build
    plans: tuple[LaunchTrace, ...]
    binaries: tuple[Binary, ...]
    launched: tuple[Any, ...] = ()


def build_triton(
    source: SourceFile,
    workload: Workload,
    load: Callable[[], Callable[..., Any]],
    device: Device,
    processes: int,
    *,
    misaligned: bool = False,
) -> TritonBuild:
    """Compile every kernel that a workload launches from a Triton file.

    Args:
        source: the kernel file, for the places of messages.
        workload: its cases and inputs.
        load: executes the file and returns a function that runs it on a case's inputs.
        device: the GPU that the code is told to run on, and compiled for.
        processes: how many may compile side by side.
        misaligned: the caller's processes will run it on misaligned inputs too, for which Triton makes code of its own;
            that is compiled beside the rest, into Triton's cache.

    Raises:
        WorkloadError: the workload's own code raises.
        CannotJudgeError: it needs something of a GPU that the fake one lacks.
    """
    build = partial(_build, source, workload, load, device, processes, misaligned=misaligned)
    if workload.captured is not None:  # its inputs are as large as in the program: to draw them takes seconds
        with contextlib.suppress(WorkloadError, CannotJudgeError):
            made = build(zeros=True)
            if made.build.binary is not None:
                return made
    return build(zeros=False)


def _build(
    source: SourceFile,
    workload: Workload,
    load: Callable[[], Callable[..., Any]],
    device: Device,
    processes: int,
    *,
    misaligned: bool,
    zeros: bool,
) -> TritonBuild:
    """Build as `build_triton` does; with `zeros` large tensors are zeros, which host code may not get along with."""
    start = time.perf_counter()
    recorder = Recorder(device.arch)

    def launch_all(run: Callable[..., Any], *, ahead: bool = False) -> tuple[LaunchTrace, ...]:
        plans = list[LaunchTrace]()
        path = file_of(run.func, workload.path) if isinstance(run, partial) else workload.path
        for number, case in enumerate(workload.cases):
            inputs = make_inputs(workload, case)
            recorder.launches.clear()
            with blame(path, f"`launch` raised for case {describe_case(case)}"):
                run(*inputs)
            plans.append(LaunchTrace(number, tuple(recorder.launches)))
            for other in misalignments(inputs) if ahead else ():
                run(*other)
        return tuple(plans)

    large = ShapesOnly() if workload.problem is not None or zeros else contextlib.nullcontext()
    with fake_gpu(device), large, received_by(recorder, device), recorder.hearing():
        try:
            run = load()
            ahead = misaligned and workload.problem is None and not workload.contract.aligned
            recorder.known = precompile(partial(launch_all, run, ahead=ahead), recorder.heard, processes)
            plans = launch_all(run)
        except WorkloadError as error:
            if error.__cause__ is not None and (lacking := shortfall(error.__cause__)) is not None:
                raise lacking from error
            diagnostic = diagnose(error, source)
            if diagnostic is None:
                raise
            seconds = time.perf_counter() - start
            return TritonBuild(Build(None, (diagnostic,), "triton", seconds, log=log_of(error, source)), (), ())
    binaries = tuple(recorder.binaries())
    seconds = time.perf_counter() - start
    if not binaries:
        words = "the workload launches no Triton kernel of this file"
        nothing = Diagnostic(str(source.path), 1, 1, 1, 1, Severity.ERROR, words)
        return TritonBuild(Build(None, (nothing,), "triton", seconds), plans, ())
    return TritonBuild(Build(merged(binaries), (), "triton", seconds), plans, binaries, tuple(recorder.launched))


def merged(binaries: Sequence[Binary]) -> Binary:
    """Return the cubin and PTX of the first of several compilations with the kernels of all."""
    return replace(
        binaries[0],
        entries={name: entry for binary in binaries for name, entry in binary.entries.items()},
        kernels=tuple(kernel for binary in binaries for kernel in binary.kernels),
    )


@dataclass(eq=False, slots=True)
class _Compiled:
    """A compiled kernel; Triton's launcher gets it from the fake driver as the function's handle."""

    symbol: str
    cubin: bytes
    entry: str
    name: str = ""
    ptx: str | None = None
    ttgir: str | None = None
    usage: PtxasUsage | None = None  # None if Triton had it compiled before

    @property
    def digest(self) -> bytes:
        """Return SHA-256 of the machine code."""
        return hashlib.sha256(self.cubin).digest()


class Recorder:
    """Records what Triton compiles and launches, in place of a GPU."""

    def __init__(self, arch: str) -> None:
        self._arch = arch
        self.compiled: list[_Compiled] = []
        self.launches: list[Launch] = []
        self.launched: dict[Any, None] = {}
        self._trying = False  # True while the autotuner times a configuration: its launches are not the workload's
        self.known: dict[bytes, PtxasUsage] = {}
        self._usage: dict[str, PtxasUsage] = {}
        self._entries: Counter[str] = Counter()
        self._names: Counter[str] = Counter()

    @contextlib.contextmanager
    def hearing(self) -> Generator[None]:
        """Record, within the context, the output of `ptxas -v` for each kernel, which Triton prints and does not
        keep.
        """
        with (
            mock.patch.dict(os.environ, {"TRITON_DUMP_PTXAS_LOG": "1"}),
            mock.patch("triton.backends.nvidia.compiler.print", self._hear, create=True),
        ):
            yield

    def load(self, symbol: str, cubin: bytes) -> _Compiled:
        """Record a compiled kernel and return its handle."""
        self._entries[symbol] += 1
        count = self._entries[symbol]
        entry = symbol if count == 1 else f"{symbol}#{count}"
        kernel = _Compiled(symbol, cubin, entry, usage=self._usage.pop(symbol, None))
        kernel.usage = kernel.usage or self.known.get(kernel.digest)
        self.compiled.append(kernel)
        return kernel

    def heard(self) -> dict[bytes, PtxasUsage]:
        """Return the ptxas output of the recorded kernels, by their digests."""
        return {kernel.digest: kernel.usage for kernel in self.compiled if kernel.usage}

    def loaded(self, kernel: _Compiled, ptx: str | None, ttgir: str | None) -> None:
        """Keep the PTX and the TTGIR of a compiled kernel."""
        kernel.ptx, kernel.ttgir = ptx, ttgir

    def launch(
        self, source: Any, metadata: Any, kernel: _Compiled, grid: tuple[int, int, int], arguments: Sequence[Any]
    ) -> None:
        """Record a launch."""
        compiled, constants = kernel, _constants(source)
        if not compiled.name:
            # Triton also makes a constant of an argument that happens to be 1; it would only lengthen the name.
            declared = [parameter.name for parameter in source.fn.params if parameter.is_constexpr]
            settings = [f"{name}={_short(constants[name])}" for name in declared if name in constants]
            name = f"{source.fn.__name__}[{', '.join([*settings, f'num_warps={metadata.num_warps}'])}]"
            self._names[name] += 1
            compiled.name = name if self._names[name] == 1 else f"{name}#{self._names[name]}"
        if self._trying:
            return
        self.launched[source.fn] = None
        self.launches.append(
            Launch(
                kernel=source.fn.__name__,
                grid=grid,
                block=(32 * metadata.num_warps, 1, 1),
                shared_bytes=metadata.shared,
                constexprs=constants,
                num_warps=metadata.num_warps,
                num_stages=getattr(metadata, "num_stages", None),
                entry=compiled.entry,
            )
        )

    def binaries(self) -> Generator[Binary]:
        """Yield each compilation that was launched, with its facts."""
        for compiled in self.compiled:
            if not compiled.name:
                continue
            facts = read_cubin(compiled.cubin, {compiled.symbol: compiled.name})
            facts = tuple(
                replace(fact, entry=compiled.entry)
                for fact in _with_spills(facts, compiled)
                if fact.entry == compiled.symbol
            )
            entries = {compiled.name: compiled.entry}
            yield Binary(self._arch, compiled.cubin, compiled.ptx, entries, facts, compiled.ttgir)

    def _hear(self, text: str) -> None:
        self._usage |= parse_ptxas_usage(text)

    def benchmark(self, call: Callable[[], object]) -> None:
        """Compile a configuration that the autotuner tries, without recording a launch."""
        self._trying = True
        try:
            call()
        finally:
            self._trying = False


def _constants(source: Any) -> dict[str, Constant]:
    """Return the compile-time parameters of a compilation, as Python literals where possible, else as text."""
    names: Sequence[str] = source.fn.arg_names
    constants: dict[tuple[int, ...], Any] = source.constants
    return {
        names[path[0]]: value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
        for path, value in constants.items()
        if len(path) == 1
    }


def _short(constant: Constant) -> str:
    """Return a constant's text; of an object, such as one of Gluon's layouts, only its class."""
    return str(constant).partition("(")[0]


def _with_spills(facts: tuple[KernelFacts, ...], compiled: _Compiled) -> tuple[KernelFacts, ...]:
    """Return facts with spill counts: 0 if there is no stack, else those that ptxas printed for the same PTX.

    If an earlier process ran ptxas, it is run again; its counts are used only if it makes the same kernel.
    """
    if compiled.usage is not None:
        return with_spills(facts, {compiled.symbol: compiled.usage})
    if all(fact.stack_bytes == 0 for fact in facts):
        return tuple(replace(fact, spill_store_bytes=0, spill_load_bytes=0) for fact in facts)
    target = _TARGET.search(compiled.ptx or "")
    if compiled.ptx is None or target is None:
        return facts
    for extra in (["--regAllocOptLevel=2"], []):
        with tempfile.TemporaryDirectory(prefix="kernel-lsp-ptxas-") as scratch:
            file = Path(scratch) / "kernel.ptx"
            file.write_text(compiled.ptx, encoding="utf-8")
            command = [
                _ptxas(target[1]),
                "-v",
                "-lineinfo",
                *extra,
                f"--gpu-name={target[1]}",
                str(file),
                "-o",
                f"{file}.o",
            ]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        usage = parse_ptxas_usage(done.stderr)
        same = all(
            fact.entry in usage
            and (usage[fact.entry].registers, usage[fact.entry].stack_bytes) == (fact.registers, fact.stack_bytes)
            for fact in facts
        )
        if done.returncode == 0 and same:
            return with_spills(facts, usage)
    return facts


def _ptxas(target: str) -> str:
    tools = knobs.nvidia
    return (tools.ptxas_blackwell if arch_number(target) >= 100 else tools.ptxas).path


def diagnose(error: WorkloadError, source: SourceFile) -> Diagnostic | None:
    """Return the error's diagnostic in the kernel file; None if the error comes from the workload."""
    path = str(source.path)
    lines = source.text.encode().splitlines()

    def at(line: int, message: str, column: int | None = None, width: int | None = None) -> Diagnostic:
        text = lines[line - 1] if 0 < line <= len(lines) else b""
        start = column if column is not None else len(text) - len(text.lstrip()) + 1
        end = start + width if width is not None else max(len(text.rstrip()) + 1, start)
        if advice := advice_on(message):
            message = f"{message.rstrip('.')}. {advice}"
        return Diagnostic(path, line, start, line, end, Severity.ERROR, message)

    chain = _chain(error)
    compilation = [link for link in chain if isinstance(link, CompilationError)]
    if compilation:
        message = _REPR.sub(r"\2", _words_of(compilation[-1], chain[-1]))
        for link in reversed(compilation):
            place = _place(link, source.text)
            if place is not None:
                name = link.node.id if isinstance(link.node, ast.Name) else None
                return at(place[0], message, place[1], len(name.encode()) if name else None)
    frames = traceback.extract_tb(chain[0].__traceback__) if chain else []
    here = [frame.lineno for frame in frames if frame.filename == path and frame.lineno]
    cause = error.__cause__
    if isinstance(cause, (OutOfResources, PTXASError, ArchitectureError)) or compilation:
        said = str(cause).strip() or error.message
        said = words_of_ptxas(said, source.path.name) if isinstance(cause, PTXASError) else said
        return at(here[-1] if here else 1, said.splitlines()[0] if compilation else said)
    if here and error.path != source.path:
        return at(here[-1], "".join(traceback.format_exception_only(cause)).strip() if cause else error.message)
    advice = f". {error.fix}" if error.fix else ""
    return at(error.line or 1, f"{error.message.rstrip('.')}{advice}") if error.path == source.path else None


def _words_of(error: CompilationError, last: BaseException) -> str:
    """Return what an error of the compiler's says; of a failed assertion without a message, its condition."""
    call = error.node
    if not error.error_message and isinstance(error, CompileTimeAssertionFailure) and isinstance(call, ast.Call):
        return f"`static_assert` fails: `{ast.unparse(call.args[0])}` does not hold"
    return str(error.error_message or last).strip()


def log_of(error: WorkloadError, source: SourceFile) -> str:
    """Return the compiler's output, with its source excerpts, callers before callees.

    For an error that is not the compiler's, the traceback lines in the user's file are returned.
    """
    chain = _chain(error)
    said = [str(link).strip() for link in chain if isinstance(link, CompilationError)]
    if said:
        return "\n\n".join(said)
    raised = chain[0] if chain else error
    frames = [frame for frame in traceback.extract_tb(raised.__traceback__) if frame.filename == str(source.path)]
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(raised)]).rstrip()


def _chain(error: WorkloadError) -> list[BaseException]:
    """Return the causes of an error, outermost first."""
    chain: list[BaseException] = []
    cause = error.__cause__
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return chain


def _place(error: CompilationError, text: str) -> tuple[int, int] | None:
    """Return line and column in `text` of an error whose position counts from the `def` of its function."""
    line, column = getattr(error.node, "lineno", None), getattr(error.node, "col_offset", 0)
    if error.src is None or line is None:
        return None
    function = [line.strip() for line in error.src.rstrip().splitlines()]
    lines = text.splitlines()
    stripped = [line.strip() for line in lines]
    for start in range(len(lines) - len(function) + 1):
        if stripped[start : start + len(function)] == function:
            indent = len(lines[start]) - len(lines[start].lstrip())
            before = error.src.splitlines()[line - 1].encode()[:column]
            return start + line, indent + len(before) + 1
    return None
