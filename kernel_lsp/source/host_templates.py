"""Reads what types and constants the template parameters of a host function stand for, from the calls that name them.

`template <class T> void run(T* x) { k<T><<<1, 32>>>(x); }` launches `k<double>` where another function has
`run<double>(x)`. Aliases, `using real = double;`, are followed on the way.
"""

import re
from collections.abc import Mapping

from kernel_lsp.source.template_arguments import FUNCTION
from kernel_lsp.source.text import between_commas

_TEMPLATE = re.compile(r"\s*template\s*<")
_PARAMETER = re.compile(r"(?P<kind>typename|class|(?:unsigned\s+)?\w+)\s+(?P<name>\w+)\s*(?:=.*)?", re.DOTALL)
_SWITCH = re.compile(r"\b(?P<macro>[A-Z][A-Z0-9_]*)\s*\([^;{}]*?,\s*(?P<name>\w+)\s*,\s*[\[{]")
_TYPE_NAME = re.compile(r"T|\w*(?:_t|[tT]ype)|\w*DType\w*")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)
_MOST = 4


def parameters_of(function: str) -> tuple[str, ...]:
    """Return the names of the template parameters with which the text of a function begins; empty if it has none."""
    return tuple(kinds_of(function))


def kinds_of(function: str) -> dict[str, str]:
    """Return the template parameters with which the text of a function begins, and of each `typename` or its type."""
    head = _TEMPLATE.match(function)
    end = _closing(function, head.end() - 1) if head else 0
    parts = between_commas(function[head.end() : end - 1], "(<[{", ">)]}") if head and end else []
    found = [FUNCTION.fullmatch(part.strip()) or _PARAMETER.fullmatch(part.strip()) for part in parts]
    named = [one.groupdict() for one in found if one is not None]
    return {one["name"]: one.get("kind") or "function" for one in named} if all(found) else {}


def switches_in(function: str) -> dict[str, str]:
    """Return the names that macros define for the lambda or block after them, each with its kind, as names tell it.

    `BOOL_SWITCH(p.causal, IsCausal, [&] { k<IsCausal><<<g, b>>>(p); })` launches one of two instances.
    """
    found = {one["name"]: one["macro"] for one in _SWITCH.finditer(function)}
    return {
        name: "typename" if _TYPE_NAME.fullmatch(name) else "int" if re.search("DIM|SIZE|INT", macro) else "bool"
        for name, macro in found.items()
    }


def calls_of(name: str, file: str) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return the explicit template arguments in the first calls of a function, with the offset of each in the file.

    Those in the body of a macro are names of its parameters.
    """
    file = _DIRECTIVE.sub(lambda directive: " " * len(directive[0]), file)
    found: dict[tuple[str, ...], int] = {}
    for match in re.finditer(rf"(?<!\w){re.escape(name)}\s*<", file):
        end = _closing(file, match.end() - 1)
        if end and file[end:].lstrip().startswith("("):
            parts = (part.strip() for part in between_commas(file[match.end() : end - 1], "(<[{", ")>]}"))
            found.setdefault(tuple(part for part in parts if part), match.start())
    return tuple((at, arguments) for arguments, at in found.items())[:_MOST]


def substituted(written: str, function: str, file: str, given: Mapping[str, str]) -> str | None:
    """Return a template argument with parameters and aliases replaced by what they stand for; None if it has none.

    Args:
        written: the argument.
        function: the text of the function up to its use.
        file: the whole text.
        given: what the template parameters of the function stand for.
    """
    text, seen, own = written, set[str](), parameters_of(function)
    while True:
        names = [name for name in dict.fromkeys(re.findall(r"(?<!::)\b[A-Za-z_]\w*", text)) if name not in seen]
        aliases = {name: _alias(name, function, file) for name in names if name not in own}
        meant = {name: value for name in names if (value := given.get(name) or aliases.get(name))}
        if not meant:
            return text if seen else None
        seen |= meant.keys()
        text = re.sub(r"(?<!::)\b[A-Za-z_]\w*", lambda word, meant=meant: meant.get(word[0], word[0]), text)


def _alias(name: str, function: str, file: str) -> str | None:
    """Return what a type's alias stands for, the last in the function, else the only one in the file; or a constant of
    the function.
    """
    pattern = rf"\busing\s+{name}\s*=\s*([^;{{}}]+);|\btypedef\s+([^;{{}}]+?)\s+{name}\s*;"
    own, every = re.findall(pattern, function), re.findall(pattern, file)
    if constants := re.findall(rf"\bconstexpr\b[^;(){{}}=]*\b{name}\s*=\s*([^;]+);", function):
        return f"({constants[-1].strip()})"
    chosen = own[-1] if own else every[0] if len(set(every)) == 1 else None
    return " ".join((chosen[0] or chosen[1]).replace("typename ", "").split()) if chosen else None


def _closing(text: str, start: int) -> int:
    """Return the offset after the `>` that closes the `<` at a position; 0 if a statement ends before it."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"<": 1, ">": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
        if text[at] in ";{":
            return 0
    return 0
