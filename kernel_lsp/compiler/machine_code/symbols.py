"""Converts the symbols in a cubin to kernel names as a person writes them in a launch."""

import ctypes
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

_ANONYMOUS = "(anonymous namespace)::"
_INTEGER_SUFFIX = re.compile(r"(?<=\d)[uUlL]+\b")


@lru_cache
def _demangler() -> ctypes.CDLL | None:
    """Return the C++ runtime, which every machine with torch or a compiler has; None if it is missing."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    library.free.argtypes = [ctypes.c_void_p]
    return library


def demangle(symbol: str) -> str:
    """Return the declaration of a C++ symbol, `void softmax<float, 256>(float const*, int)`, or another symbol
    itself.
    """
    library = _demangler()
    if library is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int()
    address = library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        return symbol
    text = ctypes.string_at(address).decode()
    library.free(address)
    return text


def kernel_name(symbol: str) -> str:
    """Return the kernel's name with namespaces and template arguments, without return type and parameters."""
    declaration = demangle(symbol)
    return symbol if declaration == symbol else _without_parameters(declaration)


def declared_name(declaration: str) -> str:
    """Return the name in a kernel's declaration, with namespaces and without template arguments: `ops::scale`."""
    name = _without_parameters(declaration) if declaration.endswith(")") else declaration
    return name.partition("<")[0]


def _without_parameters(declaration: str) -> str:
    depth, at = 0, len(declaration)
    while at:
        at -= 1
        depth += {")": 1, "(": -1}.get(declaration[at], 0)
        if depth == 0:
            break
    return declaration[:at].removeprefix("void ").replace(_ANONYMOUS, "")


def entry_names(symbols: Iterable[str], asked: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return every name under which a launch can call a kernel -> the kernel's symbol.

    A kernel is known by its qualified name and, if that is unambiguous, by the name without namespaces; overloads are
    told apart by their whole declaration (`scale(float*)`). `asked` holds names that the compiler itself resolved.
    """
    symbols = tuple(symbols)
    qualified = {symbol: kernel_name(symbol) for symbol in symbols}
    short = {symbol: _unqualified(name) for symbol, name in qualified.items()}
    names = Counter([*qualified.values(), *(s for symbol, s in short.items() if s != qualified[symbol])])
    entries: dict[str, str] = {}
    for symbol in symbols:
        for name in (qualified[symbol], short[symbol]):
            if names[name] == 1:
                entries[name] = symbol
        if names[qualified[symbol]] > 1:
            entries[demangle(symbol).removeprefix("void ").replace(_ANONYMOUS, "")] = symbol
    return entries | dict(asked or {})


def same_name(one: str, other: str) -> bool:
    """Return True if two spellings name the same kernel: `k<256, true>` and `::k<256u,true>`."""
    return _canonical(one) == _canonical(other)


def _canonical(name: str) -> str:
    return _INTEGER_SUFFIX.sub("", re.sub(r"\s+", "", name)).removeprefix("&").removeprefix("::")


def _unqualified(name: str) -> str:
    head, bracket, arguments = name.partition("<")
    return head.rpartition("::")[2] + bracket + arguments
