"""The request behind a call of `load_inline` or `load` of `torch.utils.cpp_extension`, as a record with a hash."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.errors import WorkloadError

_CUDA = (".cu", ".cuh")
_BINDS_ITSELF = re.compile(r"\b(?:PYBIND11_MODULE|TORCH_LIBRARY|TORCH_LIBRARY_FRAGMENT|STABLE_TORCH_LIBRARY)\b")


@dataclass(frozen=True, slots=True)
class Unit:
    """One translation unit: CUDA for nvcc, or plain C++; `path` is its file, if it comes from one."""

    cuda: bool
    text: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class ExtensionRequest:
    """An extension to build.

    Attributes:
        name: name that the caller gives it; not part of the digest.
        units: the texts, C++ first as torch has it.
        functions: (name, docstring) of the functions to bind; None where the texts bind their own.
        cflags: options for C++.
        cuda_cflags: options for CUDA.
        ldflags: options for the linker.
        include_paths: folders of headers.
    """

    name: str
    units: tuple[Unit, ...]
    functions: tuple[tuple[str, str], ...] | None = None
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Return SHA-256 of all fields but the name."""
        return hashlib.sha256(json.dumps(asdict(self) | {"name": ""}).encode()).hexdigest()

    @property
    def cuda(self) -> tuple[Unit, ...]:
        """Return the CUDA units."""
        return tuple(unit for unit in self.units if unit.cuda)

    @property
    def cpp(self) -> tuple[Unit, ...]:
        """Return the C++ units."""
        return tuple(unit for unit in self.units if not unit.cuda)


def inline_request(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    *,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | str | None = None,
    **_: Any,
) -> ExtensionRequest:
    """Return the request of a `load_inline` call; arguments that do not affect the build are ignored.

    Raises:
        ValueError: `functions` is neither a name, a list nor a dictionary, as torch has it.
    """
    cpp, cuda = _listed(cpp_sources), _listed(cuda_sources)
    units = (Unit(cuda=False, text="\n".join(cpp)),)
    if cuda:
        units += (Unit(cuda=True, text="\n".join(cuda)),)
    return ExtensionRequest(
        name,
        units,
        None if functions is None else tuple(_bound(functions)),
        _listed(extra_cflags),
        _listed(extra_cuda_cflags),
        _listed(extra_ldflags),
        _listed(extra_include_paths),
    )


def file_request(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    *,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | str | None = None,
    **_: Any,
) -> ExtensionRequest:
    """Return the request of a `load` call; arguments that do not affect the build are ignored.

    Raises:
        WorkloadError: a file cannot be read.
    """
    units: list[Unit] = []
    for source in map(Path, _listed(sources)):
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WorkloadError(f"`load` names a file that cannot be read: {error}", source) from error
        units.append(Unit(source.suffix in _CUDA, text, str(source.absolute())))
    own = dict.fromkeys(str(Path(unit.path).parent) for unit in units if unit.path)
    return ExtensionRequest(
        name,
        tuple(sorted(units, key=lambda unit: unit.cuda)),
        None,
        _listed(extra_cflags),
        _listed(extra_cuda_cflags),
        _listed(extra_ldflags),
        (*_listed(extra_include_paths), *own),
    )


def cuda_file_request(path: Path, text: str, functions: Sequence[str]) -> ExtensionRequest:
    """Return the request for a CUDA file by itself; `functions` are bound unless the file has bindings of its own."""
    binds = _BINDS_ITSELF.search(text) is not None
    bound = None if binds else tuple((name, "") for name in functions)
    unit = Unit(cuda=True, text=text, path=str(path))
    return ExtensionRequest(path.stem, (unit,), bound, include_paths=(str(path.parent),))


def _listed(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    listed = (given,) if isinstance(given, (str, os.PathLike)) else tuple(given)
    return tuple(text for one in listed if (text := os.fspath(one)).strip())  # people pass [""] for no options


def _bound(functions: Any) -> Iterator[tuple[str, str]]:
    if isinstance(functions, str):
        functions = [functions]
    if isinstance(functions, Mapping):
        yield from ((str(name), str(doc)) for name, doc in functions.items())
    elif isinstance(functions, (list, tuple)):
        yield from ((str(name), str(name)) for name in functions)
    else:
        raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(functions)}")
