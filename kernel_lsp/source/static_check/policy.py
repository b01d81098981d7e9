"""The policy for host code: which modules, members and names it may use without comment, with a note, or not at all.

Refused are functions of the interpreter that find, read or change frames, modules and memory, and those that open
files, processes and sockets. Noted is code that honest files have too, but that a reader of the evidence may want to
know.
"""

import importlib
import re
import sys
import types
from functools import lru_cache

from kernel_lsp.source.static_check.findings import words
from kernel_lsp.source.static_check.installed import is_installed, source_of
from kernel_lsp.source.static_check.triton_parts import violation_to_triton

PLAIN_MODULES = words(
    "__future__ abc collections contextlib dataclasses enum functools itertools math numbers textwrap torch "
    "triton typing"
)
_LISTED_BY_THEMSELVES = words(
    "copy datetime decimal fractions hashlib heapq json operator random re statistics struct typing_extensions"
)
_ALL_OF_THEM = words("apex bisect flash_attn numpy")
_MEMBERS = {
    "argparse": words(  # its FileType opens files
        "Action ArgumentDefaultsHelpFormatter ArgumentError ArgumentParser ArgumentTypeError BooleanOptionalAction "
        "HelpFormatter MetavarTypeHelpFormatter Namespace ONE_OR_MORE OPTIONAL PARSER REMAINDER "
        "RawDescriptionHelpFormatter RawTextHelpFormatter SUPPRESS ZERO_OR_MORE"
    ),
    "einops": words("EinopsError asnumpy einsum layers pack parse_shape rearrange reduce repeat unpack"),
    "inspect": words("cleandoc getdoc isclass isfunction"),
    "logging": words(
        "CRITICAL DEBUG ERROR Formatter INFO Logger NullHandler StreamHandler WARNING basicConfig critical debug "
        "error exception getLogger info log warning"
    ),
    "os": words("PathLike cpu_count curdir environ fspath getcwd getenv getpid linesep name path pathsep sep"),
    "packaging": words("version"),
    "pathlib": words("Path PurePath"),
    "platform": words("machine node processor python_version release system"),
    "pytest": words("approx fail fixture mark param raises skip"),
    "string": words("ascii_letters ascii_lowercase ascii_uppercase digits hexdigits"),  # its Formatter gets attributes
    "sys": words(
        "argv byteorder exit float_info getsizeof hexversion maxsize path platform stderr stdout version version_info"
    ),
    "tabulate": words("tabulate"),
    "threading": words("Lock RLock"),
    "time": words(  # others set clocks
        "asctime ctime gmtime localtime mktime monotonic monotonic_ns perf_counter perf_counter_ns process_time "
        "process_time_ns sleep strftime strptime struct_time thread_time thread_time_ns time time_ns timezone"
    ),
    "tqdm": words("auto tqdm trange"),  # others are threads, processes and messages
    "traceback": words("format_exc print_exc"),
    "types": words("MappingProxyType SimpleNamespace"),
    "warnings": words(  # others read lines of files
        "catch_warnings deprecated filterwarnings resetwarnings simplefilter warn"
    ),
}
TOLD_MODULES = _LISTED_BY_THEMSELVES | _ALL_OF_THEM | frozenset(_MEMBERS)
"""Modules whose import is a note."""
_OWN_WORDS_OF_NUMPY = words("array copy select string trace")
_OF_NUMPY = words(
    "DataSource add_docstring add_newdoc bit_generator compat core ctypeslib distutils extras f2py format_parser "
    "fromregex genfromtxt info lib load loadtxt lookfor memmap mrecords mtrand rec recarray recfromcsv recfromtxt "
    "record save savetxt savez savez_compressed source test testing"
)
"""Parts of numpy that read and write files or memory, run tests, or make attributes of the names of fields."""
_PARTS_OF_TORCH: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        words("ao classes export futures hub monitor multiprocessing onnx overrides package profiler serialization"),
        frozenset(),
    ),
    "autograd": words(  # others keep and tell the stack of each operation
        "Function FunctionCtx NestedIOFunction Variable backward enable_grad forward_ad function functional grad "
        "grad_mode gradcheck gradgradcheck graph inference_mode no_grad profiler set_grad_enabled "
        "set_multithreading_enabled"
    ),
    "compiler": words(
        "allow_in_graph assume_constant_result cudagraph_mark_step_begin disable is_compiling is_dynamo_compiling "
        "is_exporting reset"
    ),
    "cuda": words(
        "BFloat16Tensor BoolTensor ByteTensor CUDAGraph DoubleTensor Event ExternalStream FloatTensor HalfTensor "
        "IntTensor LongTensor MemPool OutOfMemoryError Stream StreamContext _DeviceGuard _lazy_init _sleep amp "
        "can_device_access_peer cudart current_blas_handle current_device current_stream default_generators "
        "default_stream device device_count device_of empty_cache get_arch_list get_device_capability "
        "get_device_name get_device_properties get_rng_state graph graph_pool_handle graphs init initial_seed "
        "ipc_collect is_available is_bf16_supported is_current_stream_capturing is_initialized "
        "make_graphed_callables manual_seed manual_seed_all max_memory_allocated max_memory_reserved mem_get_info "
        "memory memory_allocated memory_reserved memory_stats memory_summary nvtx power_draw random "
        "reset_accumulated_memory_stats reset_max_memory_allocated reset_peak_memory_stats seed seed_all "
        "set_device set_stream stream streams synchronize temperature use_mem_pool utilization"
    ),
    "distributed": words("get_rank get_world_size is_available is_initialized"),
    "fx": words("wrap"),
    "jit": words(  # others keep and tell the stack of each operation
        "Final ScriptModule annotate export freeze ignore interface is_scripting is_tracing "
        "optimize_for_inference script script_if_tracing unused"
    ),
    "library": words("custom_op opcheck register_autograd register_fake triton_op wrap_triton"),
    "testing": words("assert_allclose assert_close make_tensor"),
    "utils": words("checkpoint dlpack"),
}
"""Parts of torch that serve more than kernels -> their members that are allowed."""
_OF_EXTENSIONS = words("CUDA_HOME include_paths load load_inline")
_WITHIN_PARTS = {
    "autograd.profiler": words("emit_nvtx record_function"),
    "utils.checkpoint": words(
        "CheckpointPolicy SelectiveCheckpointContext checkpoint checkpoint_sequential "
        "create_selective_checkpoint_contexts"
    ),
}
_OF_DYNAMO = words("allow_in_graph config disable graph_break is_compiling mark_dynamic mark_static reset")
_SHARED_CLASSES = words("autotuner cache compiler cuda driver jit knobs runtime")
"""Parts of torch and triton whose classes and objects the harness relies on."""
_MODULES_WITHIN = words(
    "_C amp autograd backends compiler cuda extra fft functional init knobs language libdevice linalg modules nn "
    "parallel parameter random runtime sparse special testing tools"
)
"""Modules of torch and triton by their last name, to be recognised even if neither is installed."""
_FOREIGN = (sys.stdlib_module_names | {"np", "numpy"}) - words("chunk copy math random select signal trace")
"""Standard modules that torch's and triton's modules import, except names that they also use for their own."""
_OPERATORS_OF_LIBRARIES = words("_quantized c10d fsdp inductor mkl mkldnn onednn quantized symm_mem")
"""Namespaces of `torch.ops` for torch's own use: their functions take sizes and packed data as they come."""
_TRUSTING = words(
    "CTCLoss ctc_loss segment_reduce sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor "
    "sparse_csc_tensor sparse_csr_tensor"
)
"""Functions of torch that do not check, on the CPU, the indices and lengths that they are given."""
_CHECKED = re.compile(
    r"_(?:assert|check|foreach_|flash_attention|efficient_attention|scaled_dot_product)\w*|_disable_dynamo"
    r"|_(?:[a-z0-9]+_)*mm(?:_v\d)?|_(?:log_)?softmax|_fused_\w*norm|convolution_backward"
)
"""Private functions and backward operators of torch that honest versions use, and that check what they are given."""
_OPERATORS = ((), ("Tensor",), ("functional",), ("ops", "aten"))
"""Where torch keeps its operators."""
_OF_TORCHS_OWN = words("_C _VF _classes _ops")
"""Modules of torch that no file of theirs shows."""
_FILES_OF_TORCH = words("from_file load load_library save")
_HARMLESS_SETTINGS = words(
    "manual_seed manual_seed_all seed seed_all set_device set_grad_enabled set_num_threads set_printoptions set_stream"
)
_VARIABLES = words("CUDA_LAUNCH_BLOCKING MAX_JOBS PYTORCH_CUDA_ALLOC_CONF TORCH_CUDA_ARCH_LIST TRITON_PRINT_AUTOTUNING")
OF_SITE = words("copyright credits help input license")
"""Functions that Python adds for people at a terminal: they read files, import modules and wait for an answer."""
BUILTINS = words("breakpoint compile delattr eval exec globals locals open setattr vars")
DUNDERS = words(
    "__all__ __call__ __doc__ __enter__ __eq__ __exit__ __file__ __getitem__ __init__ __len__ __module__ __name__ "
    "__qualname__ __version__"
)
"""Names with two underscores that may be read."""
DEFINED = (DUNDERS - words("__file__ __module__ __name__")) | words(
    "__add__ __author__ __bool__ __constants__ __contains__ __float__ __ge__ __gt__ __hash__ __int__ __iter__ "
    "__le__ __lt__ __matmul__ __mul__ __ne__ __neg__ __next__ __post_init__ __repr__ __setitem__ __slots__ "
    "__str__ __sub__ __truediv__"
)
"""Names with two underscores that may be defined."""
_RUNNING = (
    types.AsyncGeneratorType,
    types.CodeType,
    types.CoroutineType,
    types.FrameType,
    types.GeneratorType,
    types.TracebackType,
)
_OF_THE_INTERPRETER = frozenset(
    name for kind in _RUNNING for name in dir(kind) if re.match(r"(?:ag|co|cr|f|gi|tb)_", name)
)
"""Attributes of code and of what runs it: `gi_code` of a generator makes any function."""
_REFUSED_NAMES = words(
    "BufferDict CUDAPluggableAllocator CodeType ForwardRef FunctionType MethodType ModuleType MonkeyPatch "
    "ParameterDict _getframe _share_cuda_ asyncio attrgetter attrname bdb bltns builtins cffi "
    "change_current_allocator chdir chmod codeop copy_into ctypes ctypeslib cudaHostRegister currentframe debug_dump "
    "dump evaluate_forward_ref exec_module faulthandler fcntl fdel fget findCaller find_loader find_module find_spec "
    "from_file from_ipc_handle fromfile fset gc genericpath get_annotations get_device_interface get_device_module "
    "get_field get_type_hints getattr_static getinnerframes getouterframes global_enum hardlink_to importlib "
    "importorskip inspect io ipc_handle jit_cache_hook jit_post_compile_hook kernel_load_end_hook "
    "kernel_load_start_hook kernel_lsp launch_enter_hook launch_exit_hook lchmod linecache load_library load_module "
    "makeRecord make_dataclass memory_snapshot meta_path methodcaller mkdir mmap module_finder module_from_spec "
    "modules move_into mro multiprocessing open os path_hooks pathlib pdb pickle pkgutil posix posixpath raw "
    "read_bytes read_text redirect_stderr redirect_stdout rmdir runpy set_active setenv setprofile settrace shutil "
    "singledispatch singledispatchmethod socket subprocess symlink_to sys sysconfig tb tempfile threading tofile "
    "touch traceback tracemalloc unlink update_wrapper wraps write_bytes write_text zipimport"
)
"""Attributes that no kernel needs, since they lead out of the file or write files."""
_HOOK_OF_ALL = re.compile(r"register_(?:module|optimizer)_\w*hook")
"""Functions by which code runs beside the layers and optimisers of others."""
_OF_TORCHS_CORE = ((), ("_cuda_getCurrentRawStream",))
"""Names that may follow `torch._C`."""
_STREAMS = (("sys", "stderr"), ("sys", "stdout"))
_OF_A_STREAM = words("encoding flush isatty reconfigure write")
"""What may be asked of standard output: the file behind it is of a class that opens any other file."""


def violation_to_module(dotted: str) -> str | None:
    """Return the violation of importing a module, as the rest of a sentence; None if it is allowed."""
    top = dotted.split(".")[0]
    return None if top in PLAIN_MODULES or top in TOLD_MODULES else f"imports `{top}`"


def violation_to_member(path: tuple[str, ...], *, builds: bool) -> str | None:
    """Return the violation of using a member of an imported module, as the rest of a sentence; None if it is allowed.

    Args:
        path: the dotted name, of which only the last part is judged.
        builds: True if the version may build extensions of torch.
    """
    said = _violation_by_lists(path, builds=builds)
    is_listed = path[0] in sys.stdlib_module_names or (path[0] in _MEMBERS and len(path) == 2)
    source = source_of(path) if said is None and not is_listed else None
    if source is not None and _is_out_of_reach(source):
        return f"reaches for `{'.'.join(path)}`, which is `{'.'.join(source)}`"
    return said


def _violation_by_lists(path: tuple[str, ...], *, builds: bool) -> str | None:
    dotted, last = ".".join(path), path[-1]
    if path[0] == "torch":
        return _violation_to_torch(path, builds=builds)
    if path[0] == "triton":
        tells = path[1:2] == ("_internal_testing",) and all(name.startswith("is_") for name in path[2:])
        private = not tells and path[1:2] != ("language",) and any(map(_is_private, path[1:]))
        if (last in _FOREIGN and not is_installed(path)) or private:
            return f"reaches for `{dotted}`"
        return violation_to_triton(path)
    if path[0] == "numpy" and (last in _OF_NUMPY | (_FOREIGN - _OWN_WORDS_OF_NUMPY) or any(map(_is_private, path))):
        return f"reaches for `{dotted}`"
    behind = path[:2] in _STREAMS and not _OF_A_STREAM.issuperset(path[2:3])
    if behind or (len(path) == 2 and not _offers(path[0], last)):
        return f"reaches for `{dotted}`"
    return None


def _is_out_of_reach(source: tuple[str, ...]) -> bool:
    """Return True if what a module imported for itself is nothing that host code may import."""
    if source[0] == "builtins":
        return source[-1] in BUILTINS or len(source) == 1
    if violation_to_module(source[0]) is not None or is_refused(source[-1]):
        return True
    return source[0] not in PLAIN_MODULES if len(source) == 1 else violation_to_member(source, builds=False) is not None


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _violation_to_torch(path: tuple[str, ...], *, builds: bool) -> str | None:
    dotted, last = ".".join(path), path[-1]
    if path[1:2] == ("_C",) and path[2:] not in _OF_TORCHS_CORE:
        return f"reaches for `{dotted}`"
    part = path[1] if len(path) > 1 else ""
    usual = part in ("_C", "__version__") or (part == "_dynamo" and set(path[2:3]) <= _OF_DYNAMO)
    if len(path) > 2 and part.startswith("_") and not usual:
        return f"reaches for `{dotted}`"
    if part == "ops" and not _OPERATORS_OF_LIBRARIES.isdisjoint(path[2:3]):
        return f"uses `{'.'.join(path[:3])}`"
    if "parametrize" in path:  # an attribute of any name becomes what a layer of one's own returns
        return f"uses `{dotted}`"
    if _trusts_its_arguments(path):
        return f"uses `{dotted}`, which trusts the indices and sizes that it is given"
    allowed = _PARTS_OF_TORCH.get(part)
    if allowed is not None:
        if path[1:3] == ("utils", "cpp_extension") and builds:
            return None if set(path[3:4]) <= _OF_EXTENSIONS else f"reaches for `{dotted}`"
        if not allowed or (len(path) > 2 and path[2] not in allowed):
            return f"uses `{'.'.join(path[:3])}`"
        within = allowed if path[1:3] == ("cuda", "memory") else _WITHIN_PARTS.get(".".join(path[1:3]))
        if within is not None and not within.issuperset(path[3:4]):
            return f"uses `{dotted}`"
    if _reaches_for_private(path):
        return f"reaches for `{dotted}`"
    if last in _FOREIGN and not is_installed(path):
        return f"reaches for `{dotted}`"
    if last.endswith("Storage"):
        return f"makes memory with `{dotted}`"
    if last in _FILES_OF_TORCH:
        return f"reads or writes files with `{dotted}`"
    if (last.startswith("set_") and last not in _HARMLESS_SETTINGS) or last == "use_deterministic_algorithms":
        return f"changes a setting of the whole process with `{dotted}`"
    return None


def _trusts_its_arguments(path: tuple[str, ...]) -> bool:
    """Return True if a function of torch may read and write the host's memory beyond its tensors.

    Backward operators and private functions leave the checks to those who call them; tensors by indices have none.
    """
    owner, name = path[1:-1], path[-1]
    if name in _TRUSTING and owner[:1] in ((), ("nn",), ("ops",)):
        return True
    if len(path) == 1 or owner not in _OPERATORS or name in _OF_TORCHS_OWN or _CHECKED.fullmatch(name):
        return False
    private = _is_private(name) and not is_installed(path)
    return private or (owner == ("ops", "aten") and name.endswith("_backward"))


def _reaches_for_private(path: tuple[str, ...]) -> bool:
    """Return True if a dotted name of torch has private parts that are no operators, layers or members of a class."""
    part = "".join(path[1:2])
    if part in ("_C", "_dynamo", "ops") or part[:1].isupper():
        return False
    if part == "nn":
        return any(name.startswith("_global") for name in path)
    return any(_is_private(name) and name not in _PARTS_OF_TORCH["cuda"] for name in path[2:])


def is_refused(name: str, path: tuple[str, ...] | None = None) -> bool:
    """Return True if attributes of that name are refused; `path` is the dotted name, if it was imported."""
    refused = name in _REFUSED_NAMES or name in _OF_THE_INTERPRETER or _HOOK_OF_ALL.fullmatch(name) is not None
    return refused and path != ("torch", "nn", "modules")


def note_on_member(path: tuple[str, ...]) -> str | None:
    """Return a note on using a member of an imported module, as the rest of a sentence; None for most."""
    if path[0] == "torch" and path[-1] in _HARMLESS_SETTINGS:
        return f"changes a setting of the whole process with `{'.'.join(path)}`"
    return None


def sets_a_harmless_variable(name: object) -> bool:
    """Return True if an environment variable only tunes builds and reports."""
    return name in _VARIABLES


def is_module(path: tuple[str, ...]) -> bool:
    """Return True if a dotted name is a module, as far as its name and the installed files tell."""
    if len(path) == 1 or path == ("os", "path") or (path[:2] == ("torch", "ops") and len(path) < 4):
        return True
    if path[0] == "numpy":
        return path[1:] in (("linalg",), ("fft",), ("random",), ("ma",))
    return path[0] in ("torch", "triton") and (path[-1] in _MODULES_WITHIN or is_installed(path))


def leads_to_a_class(path: tuple[str, ...]) -> bool:
    """Return True if a dotted name of torch or triton may be a class or an object that other code uses too.

    Layers, functions of `torch.nn`, element types and the like are not.
    """
    if path[0] not in ("torch", "triton") or path[1:2] in (("version",), ("ops",), ("language",)):
        return False
    if path[1:2] == ("nn",):
        return len(path) > 3 and path[2] not in ("functional", "init", "parameter")
    return len(path) > 2 or "".join(path[1:])[:1].isupper()


def leads_to_a_shared_class(path: tuple[str, ...]) -> bool:
    """Return True if a dotted name may be a class or an object that the harness relies on."""
    return leads_to_a_class(path) and not _SHARED_CLASSES.isdisjoint(path[1:-1]) and path[-1][:1].isupper()


@lru_cache
def _offers(module: str, name: str) -> bool:
    """Return True if a standard module lists a name as public, or makes no such list."""
    if module in _MEMBERS:
        return name in _MEMBERS[module]
    if module in _ALL_OF_THEM or module not in PLAIN_MODULES | _LISTED_BY_THEMSELVES:
        return True
    try:
        public = getattr(importlib.import_module(module), "__all__", None)
    except ImportError:  # typing_extensions may be missing
        return True
    return public is None or name in (*public, "abc")
