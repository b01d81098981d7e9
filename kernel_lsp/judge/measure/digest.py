"""Hash the judge's rules, all its thresholds and code, for the id of a verdict."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import kernel_lsp
from kernel_lsp import policy

_ROOTS = ("judge", "compiler", "runner", "device", "workload", "emulate", "source/static_check")
"""Code that builds a candidate, runs it or decides on it, below the package."""
_SUFFIXES = (".py", ".cu", ".h")


@cache
def policy_digest() -> str:
    """Return 16 hexadecimal digits that change with any threshold and with any line of the judge's own code.

    They depend on contents and on names below the package, not on where it lies. Computed once in a process.
    """
    return digest_of(thresholds(), Path(kernel_lsp.__file__).parent)


def thresholds() -> dict[str, object]:
    """Return all thresholds of `kernel_lsp.policy` by name."""
    return {name: value for name, value in vars(policy).items() if name.isupper()}


def digest_of(values: Mapping[str, object], package: Path) -> str:
    """Return the hash of these thresholds and of the judge's code below `package`."""
    digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=dict).encode())
    for path in _sources(package):
        code = path.read_bytes()
        digest.update(f"\0{path.relative_to(package).as_posix()}\0{len(code)}\0".encode())
        digest.update(code)
    return digest.hexdigest()[:16]


def _sources(package: Path) -> Iterator[Path]:
    """Yield the files of the judge's code in a stable order."""
    for root in (package / name for name in _ROOTS):
        if root.is_file():
            yield root
        elif root.is_dir():
            yield from sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES)
