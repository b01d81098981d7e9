"""Find where a CUDA kernel's loads and stores can be given a cache hint: `x[i]` becomes `__ldcs(&x[i])`.

A tunable is a pointer: all loads through it get the hint, or all stores. Pointers are parameters, and locals that are
made of these. One is left alone where an element is changed in place, its address is taken, or a part of it is used.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from kernel_lsp.refine.tunables.draft import Draft, Quantity
from kernel_lsp.refine.tunables.space import Kind, SiteFile, Written
from kernel_lsp.refine.tunables.syntax import words
from kernel_lsp.source.text import Span
from kernel_lsp.source.trees import walk

_MOST = 4  # pointers
_TYPE = (
    r"(?:(?:unsigned|signed)\s+)?(?:char|short|int|long long|float|double)|unsigned|u?int[24]|float[24]|double2"
    r"|u?int(?:8|16|32|64)_t|(?:__)?half2?|__nv_bfloat162?"
)
_CAST = re.compile(rf"reinterpret_cast\s*<\s*(?:const\s+)?(?:{_TYPE})(?:\s+const)?\s*\*\s*>$")
_ADDRESSES = re.compile(r"\b\w+\b(?!\s*\[)")  # names whose elements are not meant
# For data that is read or written once; and past L1, for what other multiprocessors write or L1 only holds for no use.
_LOADS = ("__ldcs", "__ldcg")
_STORES = ("__stcs", "__stcg")


@dataclass
class _Accesses:
    """The elements of one pointer that a kernel reads, the assignments that write one, and whether there are others."""

    loads: list[Node] = field(default_factory=list[Node])
    stores: list[Node] = field(default_factory=list[Node])
    others: bool = False


def add_cache_hints(draft: Draft, definition: Node) -> None:
    """Add a tunable for the loads, and one for the stores, of the first pointers of a kernel's definition."""
    found = [(name, one) for name, one in _accesses(definition).items() if not one.others and (one.loads or one.stores)]
    for name, one in found[:_MOST]:
        if one.loads:
            hint = _add(draft, f"load_{name}", f"loads of {name}", _LOADS)
            for node in one.loads:
                _wrap(draft, hint, node, node.end_byte)
        if one.stores:
            hint = _add(draft, f"store_{name}", f"stores of {name}", _STORES)
            for node in one.stores:
                left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
                assert left is not None, "it was found as an assignment"
                assert right is not None, "likewise"
                _wrap(draft, hint, left, right.end_byte)
                draft.insert(SiteFile.KERNEL, Span(left.end_byte, right.start_byte), ", ", when=hint)


def _add(draft: Draft, name: str, title: str, hints: tuple[str, ...]) -> str:
    choices = (0, *(Written(hint, hint) for hint in hints))
    return draft.add(Quantity(name, Kind.CACHE, 0, title, choices, ordered=False, absent="plain"))


def _wrap(draft: Draft, hint: str, start: Node, end: int) -> None:
    draft.insert(SiteFile.KERNEL, Span(start.start_byte, start.start_byte), f"{{{hint}}}(&")
    draft.insert(SiteFile.KERNEL, Span(end, end), ")", when=hint)


def _accesses(definition: Node) -> dict[str, _Accesses]:
    """Return the accesses through each pointer to global memory, in the order of the pointers."""
    names = list(_pointers(definition))
    found = {name: _Accesses() for name in names}
    for name in {name for name in names if names.count(name) > 1}:
        found[name].others = True
    for node in walk(definition):
        if node.type == "array_declarator" and (name := words(node.child_by_field_name("declarator"))) in found:
            found[name].others = True
        elif node.type == "subscript_expression" and (name := _pointer_of(node, found)) is not None:
            _sort(node, found[name])
    return found


def _pointers(definition: Node) -> Iterator[str]:
    """Yield the names of the parameters that point to values, and of the local pointers that are made of them.

    Values of a template's type are thought to be of a type that has hints.
    """
    types = (words(node).split()[-1] for node in walk(definition) if node.type == "type_parameter_declaration")
    pointed = "|".join([_TYPE, *map(re.escape, types)])
    pointer = re.compile(
        rf"\s*(?:const\s+)?(?:{pointed})(?:\s+const)?\s*\*\s*(?:const\s+)?(?:__restrict__\s+)?(\w+)\s*"
    )
    known: set[str] = set()
    for node in walk(definition):
        if node.type == "parameter_declaration" and (match := pointer.fullmatch(words(node))) is not None:
            known.add(match[1])
            yield match[1]
        elif node.type == "declaration" and not re.search(r"\b(__shared__|volatile)\b", words(node)):
            head, _, value = words(node).rstrip(";").partition("=")
            if (match := pointer.fullmatch(head)) is not None and known & set(_ADDRESSES.findall(value)):
                known.add(match[1])
                yield match[1]


def _pointer_of(element: Node, known: Mapping[str, _Accesses]) -> str | None:
    """Return the pointer of `x[i]` and of `reinterpret_cast<float4*>(x)[i]`."""
    pointer = element.child_by_field_name("argument")
    if pointer is None:
        return None
    if pointer.type == "call_expression":
        given = pointer.child_by_field_name("arguments")
        if given is None or _CAST.fullmatch(words(pointer.child_by_field_name("function"))) is None:
            return None
        return next((name for name in re.findall(r"\w+", words(given)) if name in known), None)
    return words(pointer) if words(pointer) in known else None


def _sort(element: Node, into: _Accesses) -> None:
    """Note an element as loaded, as stored by an assignment of its own, or as something else."""
    parent = element.parent
    inside = parent is not None and parent.child_by_field_name("argument") == element  # `x[i].y`, `x[i][j]`, `&x[i]`
    if parent is None or inside or parent.type == "update_expression":
        into.others = True
    elif parent.type == "assignment_expression" and parent.child_by_field_name("left") == element:
        alone = parent.parent is not None and parent.parent.type == "expression_statement"
        right = parent.child_by_field_name("right")
        if not alone or words(parent.child_by_field_name("operator")) != "=" or right is None or "{" in words(right):
            into.others = True
        else:
            into.stores.append(parent)
    else:
        into.loads.append(element)
