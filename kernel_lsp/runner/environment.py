"""The paths and variables of the system that every worker gets, and no others."""

import os
import sys
from pathlib import Path

from kernel_lsp.compiler.toolchain.toolkit import unpacked_headers

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


def system_paths() -> list[str]:
    """Return the paths that every worker may read: the system, this Python and all its modules."""
    system = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/run", "/var/run"]
    python = [sys.prefix, sys.base_prefix, *filter(None, sys.path), str(Path(__file__).parents[2])]
    tools = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    return sorted({os.path.realpath(path) for path in (*system, *python, *tools, unpacked_headers())})


def passed_on() -> dict[str, str]:
    """Return the variables of this process that zygotes and workers get too."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def environment_in(scratch: Path) -> dict[str, str]:
    """Return a worker's environment: no secrets, no user settings, and every cache in its own folder."""
    return passed_on() | {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "XDG_CACHE_HOME": str(scratch / "cache"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
        "CUDA_CACHE_DISABLE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
