"""Finds the classes of a CUDA file that may be an argument of a kernel's template: class templates, functors, and those
with the members that the kernel asks for, as `Element` in `typename Traits::Element`.

Of several the one with the likest name comes first: `LogSoftMaxBackwardEpilogue` for `softmax_backward`, `AddOp` for
`Op`.
"""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile

from kernel_lsp.source.outline import Declaration, code_only, outline
from kernel_lsp.source.text import between_commas

_KINDS = (b"struct", b"class")
_CALLED = re.compile(rb"\boperator\s*\(\s*\)")
_TEMPLATE = re.compile(r"template\s*<(?P<parameters>.*)>\s*(?:class|typename)\b\s*\w*", re.DOTALL)
_FUNCTOR = re.compile(
    r"(?i:\w*(?:func|functor|fn|reduc\w*|pred\w*|compar\w*|epilogue|activation|transform))(?:_?[tT]|_?[tT]ype)?"
    r"|\w*Op|Op\w*|OP"
)


@dataclass(frozen=True, slots=True)
class Class:
    """A class that a file defines.

    Attributes:
        name: with its namespaces.
        parameters: those of its template, as they are declared; none of a class that is no template.
        called: True if its objects can be called as functions.
        words: the identifiers in it, its members' names among them.
    """

    name: str
    parameters: tuple[str, ...]
    called: bool
    words: frozenset[str]


def find_classes(text: str) -> tuple[Class, ...]:
    """Return the classes that CUDA text defines at namespace level, without specialisations of templates."""
    data = text.encode()
    code = code_only(data)
    found = (_class(made, code) for made in outline(data).declarations)
    return tuple(dict.fromkeys(one for one in found if one is not None))


def template_argument(parameter: str, kernel: str, classes: tuple[Class, ...], attempt: int) -> str | None:
    """Return a class template to give for a parameter such as `template <typename> class Op`; None if there is none.

    Args:
        parameter: as it is declared.
        kernel: the name of the kernel.
        classes: those of its file.
        attempt: 0 for the likeliest, 1 for the next.
    """
    declared = _TEMPLATE.match(parameter)
    if declared is None:
        return None
    wanted = len(_parts(declared["parameters"]))
    fitting = [one for one in classes if len(one.parameters) == wanted]
    found = _likest(kernel, parameter.split()[-1], fitting, attempt)
    return None if found is None else found.name


def type_argument(
    parameter: str, members: frozenset[str], kernel: str, classes: tuple[Class, ...], attempt: int
) -> Class | None:
    """Return a class to give for a type parameter: one with the members that the kernel asks of it, or one that can be
    called, for a parameter with a functor's name. None for a parameter of another kind.

    Args:
        parameter: the name of the parameter.
        members: see `members_asked`.
        kernel: the name of the kernel.
        classes: those of its file.
        attempt: 0 for the likeliest, 1 for the next.
    """
    if members:
        return _likest(kernel, parameter, [one for one in classes if members <= one.words], attempt)
    if _FUNCTOR.fullmatch(parameter) is None:
        return None
    return _likest(kernel, parameter, [one for one in classes if one.called], attempt)


def members_asked(parameter: str, text: str) -> frozenset[str]:
    """Return the members that CUDA text asks of a type parameter, as `Element` in `typename Traits::Element`."""
    return frozenset(re.findall(rf"(?<![:\w]){parameter}\s*::\s*(?:template\s+)?(\w+)", text))


def _likest(kernel: str, parameter: str, classes: list[Class], attempt: int) -> Class | None:
    """Return the class whose name ends most as the parameter's does, then the one that is most like the kernel's."""

    def unlike(made: Class) -> tuple[int, float]:
        name = made.name.lower()
        pairs = zip(reversed(name), reversed(parameter.lower()), strict=False)
        ending = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return -ending, -SequenceMatcher(None, kernel.lower(), name).ratio()

    ordered = sorted(classes, key=unlike)
    return ordered[attempt % len(ordered)] if ordered else None


def _class(made: Declaration, code: bytes) -> Class | None:
    texts = [token.text for token in made.head]
    at = next((i for i, text in enumerate(texts) if text in _KINDS), None)
    if at is None or made.body is not None or b"{}" not in texts or made.declarator is not None:
        return None
    end = next(i for i, text in enumerate(texts) if i > at and text in (b"{}", b":", b"<"))
    headers = [token for token in made.head[:at] if token.text == b"template"]
    parameters = _parts(code[headers[-1].start : headers[-1].end].decode().partition("<")[2][:-1]) if headers else ()
    names = [text.decode() for text in texts[at + 1 : end] if re.fullmatch(rb"[A-Za-z_]\w*", text) and text != b"final"]
    if not names or texts[end] == b"<" or (headers and not parameters):
        return None
    called = _CALLED.search(code, made.span.start, made.span.end) is not None
    scope = [part.decode() for part in made.scope if part]
    words = frozenset(word.decode() for word in re.findall(rb"[A-Za-z_]\w*", code[made.span.start : made.span.end]))
    return Class("::".join([*scope, names[-1]]), parameters, called, words)


def _parts(parameters: str) -> tuple[str, ...]:
    """Return the parameters of a template header; commas in brackets part none."""
    return tuple(one.strip() for one in between_commas(parameters, "<([", ">)]")) if parameters.strip() else ()
