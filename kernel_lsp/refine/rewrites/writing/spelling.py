"""Spell polynomials of a kernel's numbers as C++."""

import re

from kernel_lsp.refine.rewrites.reading.affine import Polynomial
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError

_INTEGER = re.compile(r"((un)?signed|char|short|int|long|bool)\b.*|u?int\d+_t|size_t|uint|uchar|ushort")
_SIMPLE = re.compile(r"[\w.]+(\([^()]*\)|\[[^\[\]]*\])*")


def spelled(amount: Polynomial) -> str:
    """Return a polynomial of a kernel as C++.

    Raises:
        NotApplicableError: it has unknowns that cannot be named everywhere.
    """
    parts: list[str] = []
    for unknowns, n in sorted(amount.terms.items(), key=lambda term: (-len(term[0]), term[0])):
        if n < 0 or any("@" in name for name in unknowns):
            raise NotApplicableError("an index that cannot be spelled")
        parts.append(" * ".join([*([str(n)] if n != 1 or not unknowns else []), *unknowns]))
    return " + ".join(parts) or "0"


def closed(text: str) -> str:
    """Return an expression as a factor: in parentheses unless it is a name, a call or an element."""
    return text if _SIMPLE.fullmatch(text) else f"({text})"


def zero_of(kind: str) -> str:
    """Return a zero of a type as C++."""
    if _INTEGER.fullmatch(kind):
        return "0"
    return {"float": "0.0f", "double": "0.0"}.get(kind, f"{kind}{{}}")


def as_factor(text: str) -> str:
    """Return an unknown as a factor: those that are no names have their parentheses."""
    return text if text.startswith("(") else closed(text)


def summed(amount: Polynomial) -> str:
    """Return a polynomial without negative factors as C++, with products of names in 64 bits."""
    ordered = sorted(amount.terms.items(), key=lambda term: (-len(term[0]), term[0]))
    return " + ".join(_product(key, n) for key, n in ordered) or "0"


def _product(key: tuple[str, ...], n: int) -> str:
    """Return a product as text, in 64 bits where names are multiplied."""
    parts = [*([str(n)] if n != 1 or not key else []), *(as_factor(one) for one in key)]
    return ("(size_t)" if len(key) > 1 else "") + " * ".join(parts)
