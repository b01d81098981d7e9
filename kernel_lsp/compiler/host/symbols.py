"""Finds the functions that a built library takes from others, and among them those that no kernel's host code needs.

A macro, an assembler label or a function pointer can hide a call in the text of host code; a symbol that the dynamic
loader has to resolve cannot be hidden. The layout is that of the System V ABI, chapter 5, "Symbol Table".
"""

import re

from kernel_lsp.compiler.host.c_functions import serves_host_code
from kernel_lsp.compiler.machine_code.elf import (
    ElfSymbol,
    Section,
    read_sections,
    read_segments,
    read_symbols,
)
from kernel_lsp.compiler.machine_code.symbols import demangle

_UNDEFINED = 0  # SHN_UNDEF
_RESERVED = 0xFF00  # SHN_LORESERVE
_OBJECT = 1  # STT_OBJECT
_EXECUTABLE = 4  # SHF_EXECINSTR
_LOADED = 2  # SHF_ALLOC
_MAPPED, _STACK = 1, 0x6474E551  # PT_LOAD, PT_GNU_STACK
_RUNS, _WRITES = 1, 2  # PF_X, PF_W
_VERSION = re.compile(r"@.*")
_PYTHON = (
    r"_?PyRun_\w+|_?PyImport_\w+|_?PyEval_(?:EvalCode\w*|EvalFrame\w*|SetProfile\w*|SetTrace\w*|GetGlobals|GetLocals|GetFrame\w*)"
    r"|_?Py_Compile\w+|_?PySys_\w+|_?PyGC_\w+|PyObject_GC_Get\w+|_?PyUnstable_\w+|_?PyMarshal_\w+|_?PyCode_New\w*|_?PyFunction_\w+"
    r"|PyThreadState_SetAsyncExc|PyInterpreterState_(?:Head|Next|Main)|Py_AddPendingCall|Py_AtExit|Py_NewInterpreter\w*"
    r"|Py_Finalize\w*|PyMem_SetAllocator|PyObject_SetArenaAllocator|PyOS_\w+"
)
_CUDA = (
    r"cudaThreadExchangeStreamCaptureMode|cuThreadExchangeStreamCaptureMode|cudaCtxResetPersistingL2Cache"
    r"|cuCtxResetPersistingL2Cache|cudaDeviceSetLimit|cuCtxSetLimit|cudaDeviceReset|cuDevicePrimaryCtxReset\w*"
    r"|cudaSetDeviceFlags|cuDevicePrimaryCtxSetFlags\w*|cuCtxCreate\w*|cuGreenCtx\w+|cudaExecutionCtx\w+"
    r"|cudaDeviceSetCacheConfig|cuCtxSetCacheConfig|cu(?:da)?DeviceSetMemPool|cu(?:da)?GetExportTable|cupti\w+|nvml\w+"
)
_FILES_OF_CUDA = (
    r"cuFile\w+|cuCoredump\w+|cuCheckpoint\w+|cuLogsDump\w+|cu(?:da)?(?:LibraryLoadFromFile|GraphDebugDotPrint)"
    r"|cuModuleLoad|cuLinkAddFile\w*"
)
_CALLED_BACK = (
    r"cu(?:da)?LaunchHostFunc\w*|cu(?:da)?StreamAddCallback\w*|cu(?:da)?UserObjectCreate"
    r"|cu(?:da)?GraphAddHostNode|cu(?:da)?Graph(?:Exec)?HostNodeSetParams"
    r"|cu(?:da)?GraphAddNode\w*|cu(?:da)?Graph(?:Exec)?NodeSetParams\w*"
)
"""Functions by which the driver runs host code on a thread of its own, after the call that was judged; the last ones
add nodes of any kind, or make them such."""
_OF_A_CAPTURE = (
    r"cu(?:da)?StreamGetCaptureInfo\w*|cu(?:da)?StreamUpdateCaptureDependencies\w*|cu(?:da)?StreamBeginCaptureToGraph"
)
"""Functions that hand out the graph under capture, or go on with it: the harness's, with its flushes and marks."""
_OF_OTHER_PROCESSES = (
    r"cu(?:da)?Ipc\w+|cu(?:da)?MemPool(?:Import|Export)\w+|cuMem(?:Import|Export)\w+|cu(?:da)?ImportExternalMemory"
)
_OF_C = re.compile("|".join((_PYTHON, _CUDA, _CALLED_BACK, _OF_A_CAPTURE, _OF_OTHER_PROCESSES, _FILES_OF_CUDA)))
_OF_CPP = re.compile(
    r"std::thread::_M_start_thread|std::basic_(?:i|o)?f(?:stream|ilebuf)\b.*|std::filesystem::.*"
    r"|std::__basic_file<.*>::(?:sys_)?open|torch::serialize::\w+::(?:load_from|save_to)\b.*|caffe2::serialize::.*"
    r"|torch::(?:jit::)?pickle_(?:load|save)\b.*|libkineto::.*|torch::profiler::impl::.*"
    r"|torch::autograd::profiler::(?:enable|disable|prepare)Profiler.*|c10::impl::DeviceGuardImplRegistrar::.*"
    r"|at::DynamicLibrary::.*|at::Context::set\w+|torch::jit::(?:load|import_\w+)\b.*|c10::impl::OperatorEntry.*"
    r"|at::(?:Refcounted)?MapAllocator\w*::.*|at::_ops::from_file\w*::.*|at::set_num_\w*threads\b.*|c10::get_backtrace\b.*"
    r"|c10::(?:try_)?make_temp\w+|c10::TempFile::.*|c10d::.*|torch::cuda::CUDAPluggableAllocator::.*|torch::inductor::.*"
    r"|torch::(?:unwind|CapturedTraceback)::.*|torch::jit::(?:tracer::(?:pythonCallstack|\w+Source\w+)|currentCallstack)\b.*"
    r"|at::(?:add(?:Global|ThreadLocal)Callback|launch|intraop_launch\w*)\b.*|at::SavedTensorDefaultHooks::.*"
    r"|c10::(?:Set\w+|ThreadPool::.*|TaskThreadPool::.*|Dispatcher::(?:register|add)\w+|RegisterOperators::.*)"
)


def undefined_symbols(library: bytes) -> frozenset[str]:
    """Return the undefined dynamic symbols of a shared library: mangled names, without versions.

    Args:
        library: the ELF image.

    Raises:
        ValueError: it is not a 64-bit ELF image with a table of dynamic symbols.
    """
    _, symbols = _read(library, ".dynsym")
    return frozenset(
        _VERSION.sub("", symbol.name) for symbol in symbols if symbol.section == _UNDEFINED and symbol.name
    )


def _read(library: bytes, table: str) -> tuple[list[Section], list[ElfSymbol]]:
    """Return a library's sections, and the symbols of a table that it must have."""
    try:
        sections = read_sections(library)
        tables = [section for section in sections if section.name == table]
        symbols = [symbol for found in tables for symbol in read_symbols(found, sections)]
    except Exception as error:  # struct.error, IndexError and others that a damaged image may raise
        raise ValueError("the built library is not a readable ELF image") from error
    if not tables:
        raise ValueError(f"the built library has no `{table}`, its table of symbols")
    return sections, symbols


def data_in_code(library: bytes) -> tuple[str, ...]:
    """Return what of a built library lies among its instructions, or where it may be run, and is no code.

    Variables are named, and sections of data in memory that may be run; so is the stack where the library asks for one
    that may, and writable memory with instructions. Options of the linker do that as well as the text.

    Args:
        library: the ELF image.

    Raises:
        ValueError: see `undefined_symbols`.
    """
    sections, symbols = _read(library, ".symtab")
    found = (symbol for symbol in symbols if symbol.kind == _OBJECT and 0 < symbol.section < _RESERVED)
    named = {demangle(one.name) for one in found if sections[one.section].flags & _EXECUTABLE}
    segments = read_segments(library)
    if not any(one.kind == _STACK and not one.flags & _RUNS for one in segments):  # without a word it may be run
        named.add("the stack")
    for segment in (one for one in segments if one.kind == _MAPPED and one.flags & _RUNS):
        inside = [one for one in sections if one.flags & _LOADED and segment.start <= one.address < segment.end]
        named |= {one.name for one in inside if one.size and (segment.flags & _WRITES or not one.flags & _EXECUTABLE)}
    return tuple(sorted(named, key=lambda name: (name != ".rodata", name)))


def forbidden_symbols(library: bytes, baseline: bytes | None = None) -> tuple[str, ...]:
    """Return the forbidden functions that a built library calls, as a person writes them, in alphabetical order.

    Forbidden are functions that find or change code, map memory, start processes or threads, are called back by the
    driver, open files, share memory with other processes, run Python, or change settings of the whole process or GPU.
    No kernel's host code needs them. Functions of C are forbidden unless host code may need them.

    Args:
        library: the ELF image of a version's host code, with or without torch's own headers.
        baseline: that of the baseline, which a version may follow in all that it does.

    Raises:
        ValueError: see `undefined_symbols`.
    """
    asked = undefined_symbols(library)
    usual = undefined_symbols(baseline) if baseline is not None else frozenset[str]()
    return tuple(sorted({written for name in asked - usual if (written := _forbidden(name)) is not None}))


def _forbidden(symbol: str) -> str | None:
    """Return a forbidden symbol's function name as a person writes it; None if it is not forbidden."""
    if not symbol.startswith("_Z"):
        return symbol if _OF_C.fullmatch(symbol) or not serves_host_code(symbol) else None
    name = demangle(symbol)
    return name.partition("(")[0] if _OF_CPP.match(name) else None
