"""Finds C++ host code that computes where to call: with the addresses of functions, or numbers as functions.

Instructions may lie in the midst of others, or in the numbers that they hold, and only such a call reaches them.
"""

import re
from collections.abc import Iterator

_KEYWORDS = frozenset(("catch", "do", "else", "for", "if", "return", "sizeof", "switch", "while"))
_DEFINED = re.compile(r"\b([A-Za-z_]\w*)\s*\((?:[^(){};]|\([^(){};]*\))*\)\s*(?:const\b|noexcept\b|override\b|\s)*\{")
_NUMBER = (
    r"(?:const\s+|volatile\s+)*(?:std\s*::\s*)?(?:unsigned\s+|signed\s+)?"
    r"(?:u?intptr_t|ptrdiff_t|s?size_t|u?int64_t|(?:unsigned|long)(?:\s+(?:long|int))*"
    r"|(?:char|byte|u?int(?:8|16|32|64)_t|long|int|short)\s*(?:const\s*)?\*)"
)
_AS_A_NUMBER = re.compile(
    rf"(?:\(\s*{_NUMBER}\s*\)|\b(?:reinterpret|static|bit)_cast\s*<\s*{_NUMBER}\s*>\s*\()"
    r"\s*\(?\s*(?:\(\s*(?:const\s+)?void\s*\*\s*\)|\b(?:reinterpret|static)_cast\s*<\s*(?:const\s+)?void\s*\*\s*>\s*\()?"
    r"\s*(?P<address>&?)\s*(?P<name>[A-Za-z_]\w*)\b(?!\s*(?:[(<\[.]|->|::))"
)
_FUNCTION = r"[\w:<>,&*\s]*\(\s*\*\s*\)\s*\((?:[^()]|\([^()]*\))*\)"
_ALIAS = re.compile(
    rf"\busing\s+(\w+)\s*=\s*{_FUNCTION}\s*;|\btypedef\s+[^;()]*\(\s*\*\s*(\w+)\s*\)\s*\("
    r"|\busing\s+(\w+)\s*=\s*decltype\s*\(\s*&"
)
_POINTER = re.compile(r"\b[\w:<>]+[\s*&]+\(\s*\*\s*(?:const\s+|volatile\s+)?(\w+)\s*\)\s*\(")
_UNION = re.compile(r"\bunion\b[^{};]*\{(?P<members>[^{}]*)\}")
_CALCULATED = re.compile(r"[+^|]|-(?!>)|[\w)\]]\s*&(?!&)|\w\s*\[|\b0[xX][0-9a-fA-F]+")
_LONGEST = 400  # characters of an expression that is cast


def computed_calls(code: str) -> Iterator[tuple[int, str]]:
    """Yield where host code computes with a function's address or calls a number, and what it does.

    Args:
        code: the text without comments and strings.
    """
    aliases = {name for found in _ALIAS.findall(code) for name in found if name}
    functions = set(_DEFINED.findall(code)) - _KEYWORDS
    for match in _AS_A_NUMBER.finditer(code):
        if match["name"] in functions and (match["address"] or not _is_declared(match["name"], code)):
            yield match.start(), f"computes with the address of the function `{match['name']}`"
    types = "|".join([_FUNCTION, r"\s*decltype\s*\(\s*&[^()]*\)\s*", *(rf"\s*{name}\s*" for name in sorted(aliases))])
    casts = re.compile(rf"\((?:{types})\)\s*\(|\b(?:reinterpret|static|bit)_cast\s*<(?:{types})>\s*\(")
    for match in casts.finditer(code):
        if _CALCULATED.search(_within(code, match.end())):
            yield match.start(), "calls what it computes as a function"
    pointers = set(_POINTER.findall(code))
    pointers |= {name for alias in aliases for name in re.findall(rf"\b{alias}\s+(\w+)\s*[;=({{]", code)}
    for name in sorted(pointers):
        for match in re.finditer(rf"\bmem(?:cpy|move|set)\s*\(\s*(?:\([^()]*\)\s*)?&\s*{name}\b", code):
            yield match.start(), f"sets the function `{name}` byte by byte"
    for match in _UNION.finditer(code):
        if _POINTER.search(match["members"]) or any(re.search(rf"\b{name}\b", match["members"]) for name in aliases):
            yield match.start(), "keeps a number and a function in one place"


def _is_declared(name: str, code: str) -> bool:
    """Return True if a name is a variable's or a parameter's too."""
    kinds = r"auto|bool|char|double|float|int|long|short|\w+_t|unsigned"
    return re.search(rf"\b(?:{kinds})[\s*&]+{name}\s*[;=,)\[{{]", code) is not None


def _within(code: str, start: int) -> str:
    """Return the text from behind an opening parenthesis to the one that closes it."""
    depth = 1
    for place in range(start, min(len(code), start + _LONGEST)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return code[start:place]
    return code[start : start + _LONGEST]
