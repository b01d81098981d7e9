"""The modules of large libraries that a user's files import: nurseries import them too, for the workers that follow."""

import sys
from collections.abc import Collection

_LIBRARIES = frozenset({"numpy", "torch", "triton"})  # importing them starts no thread and asks nothing of the GPU
_NEVER = "torch.testing"  # its helpers look for a GPU when they are imported, and read the command line
_DEEPEST = 3  # parts of a name: packages import what lies below


def names() -> frozenset[str]:
    """Return the names of all modules that this process has imported."""
    return frozenset(sys.modules)


def imported_since(before: Collection[str]) -> tuple[str, ...]:
    """Return the modules of these libraries that were imported since `names` gave `before`, in that order."""
    return tuple(name for name in tuple(sys.modules) if name not in before and is_importable_ahead(name))


def is_importable_ahead(name: str) -> bool:
    """Return True if a process that never runs a user's code may import a module of this name."""
    parts = name.split(".")
    never = name == _NEVER or name.startswith(f"{_NEVER}.")
    return parts[0] in _LIBRARIES and len(parts) <= _DEEPEST and not never
