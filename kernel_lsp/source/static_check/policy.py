"""The policy for host code: which modules, members and names it may use without comment, with a note, or not at all.

Refused are functions of the interpreter that find, read or change frames, modules and memory, and those that open
files, processes and sockets. Noted is code that honest files have too, but that a reader of the evidence may want to
know.
"""

import importlib
import importlib.util
import sys
from functools import lru_cache
from pathlib import Path

from kernel_lsp.source.static_check.findings import words

PLAIN_MODULES = words(
    "__future__ abc collections contextlib dataclasses enum functools itertools math numbers textwrap torch "
    "triton typing"
)
_LISTED_BY_THEMSELVES = words(
    "copy datetime decimal fractions hashlib heapq json operator random re statistics struct typing_extensions warnings"
)
_ALL_OF_THEM = words("apex bisect einops flash_attn numpy packaging tabulate time tqdm")
_MEMBERS = {
    "argparse": words(  # its FileType opens files
        "Action ArgumentDefaultsHelpFormatter ArgumentError ArgumentParser ArgumentTypeError BooleanOptionalAction "
        "HelpFormatter MetavarTypeHelpFormatter Namespace ONE_OR_MORE OPTIONAL PARSER REMAINDER "
        "RawDescriptionHelpFormatter RawTextHelpFormatter SUPPRESS ZERO_OR_MORE"
    ),
    "inspect": words("cleandoc getdoc isclass isfunction"),
    "logging": words(
        "CRITICAL DEBUG ERROR Formatter INFO Logger NullHandler StreamHandler WARNING basicConfig critical debug "
        "error exception getLogger info log warning"
    ),
    "os": words("PathLike cpu_count curdir environ fspath getcwd getenv getpid linesep name path pathsep sep"),
    "pathlib": words("Path PurePath"),
    "platform": words("machine node processor python_version release system"),
    "pytest": words("approx fail fixture mark param raises skip"),
    "string": words("ascii_letters ascii_lowercase ascii_uppercase digits hexdigits"),  # its Formatter gets attributes
    "sys": words(
        "argv byteorder exit float_info getsizeof hexversion maxsize path platform stderr stdout version version_info"
    ),
    "threading": words("Lock RLock"),
    "traceback": words("format_exc print_exc"),
    "types": words("MappingProxyType SimpleNamespace"),
}
TOLD_MODULES = _LISTED_BY_THEMSELVES | _ALL_OF_THEM | frozenset(_MEMBERS)
"""Modules whose import is a note."""
_OF_NUMPY = words(
    "DataSource compat core ctypeslib distutils f2py fromregex genfromtxt lib load loadtxt memmap rec save "
    "savetxt savez savez_compressed testing"
)
_PARTS_OF_TORCH: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        words("classes futures hub multiprocessing onnx overrides package profiler serialization"), frozenset()
    ),
    "distributed": words("get_rank get_world_size is_available is_initialized"),
    "fx": words("wrap"),
    "jit": words(
        "Final ScriptModule annotate export freeze ignore interface is_scripting is_tracing "
        "optimize_for_inference script script_if_tracing trace unused"
    ),
    "library": words("custom_op opcheck register_autograd register_fake triton_op wrap_triton"),
    "testing": words("assert_allclose assert_close make_tensor"),
    "utils": words("checkpoint dlpack"),
}
"""Parts of torch that serve more than kernels -> their members that are allowed."""
_OF_EXTENSIONS = words("CUDA_HOME include_paths load load_inline")
_OF_DYNAMO = words("allow_in_graph config disable graph_break is_compiling mark_dynamic mark_static reset")
_PARTS_OF_TRITON = words(
    "backends build compile_module_from_src get_cache_manager get_dump_manager get_override_manager"
)
_SHARED_CLASSES = words("autotuner cache compiler cuda driver jit knobs runtime")
"""Parts of torch and triton whose classes and objects the harness relies on."""
_MODULES_WITHIN = words(
    "_C amp autograd backends compiler cuda extra fft functional init knobs language libdevice linalg modules nn "
    "parallel parameter random runtime sparse special testing tools"
)
"""Modules of torch and triton by their last name, to be recognised even if neither is installed."""
_FOREIGN = (sys.stdlib_module_names | {"np", "numpy"}) - words("chunk copy math random select signal trace")
"""Standard modules that torch's and triton's modules import, except names that they also use for their own."""
_FILES_OF_TORCH = words("from_file load load_library save")
_HARMLESS_SETTINGS = words(
    "manual_seed manual_seed_all seed seed_all set_device set_grad_enabled set_num_threads set_printoptions set_stream"
)
_VARIABLES = words("CUDA_LAUNCH_BLOCKING MAX_JOBS PYTORCH_CUDA_ALLOC_CONF TORCH_CUDA_ARCH_LIST TRITON_PRINT_AUTOTUNING")
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
_REFUSED_NAMES = words(
    "CUDAPluggableAllocator CodeType ForwardRef FunctionType MethodType ModuleType MonkeyPatch _getframe ag_frame "
    "asyncio attrgetter bdb bltns builtins change_current_allocator chdir codeop cr_frame ctypes ctypeslib "
    "currentframe dump evaluate_forward_ref f_back f_builtins f_code f_globals f_locals f_trace faulthandler "
    "fcntl fdel fget from_file fromfile fset gc genericpath get_annotations get_device_interface "
    "get_device_module get_field get_type_hints getattr_static getinnerframes getouterframes gi_frame importlib "
    "importorskip inspect io kernel_lsp linecache load_library make_dataclass meta_path methodcaller mmap modules "
    "mro multiprocessing open os path_hooks pathlib pdb pickle pkgutil posix posixpath read_bytes read_text "
    "redirect_stderr redirect_stdout rmdir runpy set_active setprofile settrace shutil singledispatch "
    "singledispatchmethod socket subprocess symlink_to sys sysconfig tb_frame tb_next tempfile threading tofile "
    "tracemalloc unlink update_wrapper wraps write_bytes write_text zipimport "
    "_share_cuda_ jit_cache_hook jit_post_compile_hook kernel_load_end_hook kernel_load_start_hook "
    "launch_enter_hook launch_exit_hook memory_snapshot register_module_backward_hook "
    "register_module_buffer_registration_hook register_module_forward_hook register_module_forward_pre_hook "
    "register_module_full_backward_hook register_module_full_backward_pre_hook "
    "register_module_module_registration_hook register_module_parameter_registration_hook"
)
"""Attributes that no kernel needs, since they lead out of the file or write files."""
_OF_TORCHS_CORE = ((), ("_cuda_getCurrentRawStream",))
"""Names that may follow `torch._C`."""


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
    dotted, last = ".".join(path), path[-1]
    if path[0] == "torch":
        return _violation_to_torch(path, builds=builds)
    if path[0] == "triton":
        if (last in _FOREIGN and not _is_installed(path)) or last == "_C":
            return f"reaches for `{dotted}`"
        return f"uses `{dotted}`" if last in _PARTS_OF_TRITON else None
    if path[0] == "numpy" and (last in _OF_NUMPY or last in sys.stdlib_module_names - words("random")):
        return f"reaches for `{dotted}`"
    if len(path) == 2 and not _offers(path[0], last):
        return f"reaches for `{dotted}`"
    return None


def _violation_to_torch(path: tuple[str, ...], *, builds: bool) -> str | None:
    dotted, last = ".".join(path), path[-1]
    if path[1:2] == ("_C",) and path[2:] not in _OF_TORCHS_CORE:
        return f"reaches for `{dotted}`"
    part = path[1] if len(path) > 1 else ""
    usual = part in ("_C", "__version__") or (part == "_dynamo" and set(path[2:3]) <= _OF_DYNAMO)
    if len(path) > 2 and part.startswith("_") and not usual:
        return f"reaches for `{dotted}`"
    allowed = _PARTS_OF_TORCH.get(part)
    if allowed is not None:
        if path[1:3] == ("utils", "cpp_extension") and builds:
            return None if set(path[3:4]) <= _OF_EXTENSIONS else f"reaches for `{dotted}`"
        if not allowed or (len(path) > 2 and path[2] not in allowed):
            return f"uses `{'.'.join(path[:3])}`"
    if last in _FOREIGN and not _is_installed(path):
        return f"reaches for `{dotted}`"
    if last in _FILES_OF_TORCH:
        return f"reads or writes files with `{dotted}`"
    if (last.startswith("set_") and last not in _HARMLESS_SETTINGS) or last == "use_deterministic_algorithms":
        return f"changes a setting of the whole process with `{dotted}`"
    return None


def is_refused(name: str, path: tuple[str, ...] | None = None) -> bool:
    """Return True if attributes of that name are refused; `path` is the dotted name, if it was imported."""
    return name in _REFUSED_NAMES and path != ("torch", "nn", "modules")


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
    if len(path) == 1 or path == ("os", "path"):
        return True
    if path[0] == "numpy":
        return path[1:] in (("linalg",), ("fft",), ("random",), ("ma",))
    return path[0] in ("torch", "triton") and (path[-1] in _MODULES_WITHIN or _is_installed(path))


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
def _is_installed(path: tuple[str, ...]) -> bool:
    try:
        found = importlib.util.find_spec(path[0])  # of a top-level name, so nothing is imported
    except (ImportError, ValueError):
        return False
    folders = [Path(folder, *path[1:]) for folder in (found.submodule_search_locations or ())] if found else []
    return any(base.with_name(f"{base.name}.py").is_file() or (base / "__init__.py").is_file() for base in folders)


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
