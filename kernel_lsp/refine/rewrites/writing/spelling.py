"""Spell polynomials of a kernel's numbers as C++."""

import re
from collections.abc import Mapping

from kernel_lsp.refine.rewrites.reading.affine import Polynomial
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError

_INTEGER = re.compile(r"((un)?signed|char|short|int|long|bool)\b.*|u?int\d+_t|size_t|uint|uchar|ushort")
_SIMPLE = re.compile(r"[\w.]+(\([^()]*\)|\[[^\[\]]*\])*")


def spelled(amount: Polynomial) -> str:
    """Return a polynomial of a kernel as C++.

    Raises:
        NotApplicableError: it has unknowns that cannot be named everywhere.
    """
    if any("@" in name for key in amount.terms for name in key) or max(amount.terms.values(), default=0) < 0:
        raise NotApplicableError("an index that cannot be spelled")
    return with_signs(amount, {name: name for key in amount.terms for name in key})


def with_signs(amount: Polynomial, texts: Mapping[str, str]) -> str:
    """Return a polynomial with a text for each of its unknowns, positive terms of a degree first."""
    ordered = sorted(amount.terms.items(), key=lambda term: (-len(term[0]), term[1] < 0, term[0]))
    shown = ""
    for unknowns, n in ordered:
        names = [texts[name] for name in unknowns]
        part = " * ".join([*([str(abs(n))] if abs(n) != 1 or not names else []), *names])
        shown += (f" {'-' if n < 0 else '+'} " if shown else "-" * (n < 0)) + part
    return shown or "0"


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
