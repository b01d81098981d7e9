"""Find the tunables inside a Triton kernel: cache hints of its loads and stores, and options of its loops.

An option of `tl.range` is offered only if the installed Triton has it; those that work on Blackwell alone, only there.
"""

import importlib.util
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.tunables.draft import Draft, Quantity
from kernel_lsp.refine.tunables.space import Kind, SiteFile, Written
from kernel_lsp.refine.tunables.syntax import words
from kernel_lsp.source.trees import span_of, walk

_MOST_LOADS, _MOST_STORES, _MOST_LOOPS = 3, 2, 3
_BLACKWELL = 10  # major number of the architecture whose tensor cores write to a memory of their own
_HINTS = ("eviction_policy", "cache_modifier")
_FIRST, _LAST = (Written(name, f'eviction_policy="{name}"') for name in ("evict_first", "evict_last"))
_LOAD_HINTS = (_FIRST, _LAST, Written(".cg", 'cache_modifier=".cg"'))
_STORE_HINTS = (_FIRST, Written(".cs", 'cache_modifier=".cs"'))
_INNER = {
    "unrolled by 2": "loop_unroll_factor=2",
    "unrolled by 4": "loop_unroll_factor=4",
    "nothing moved out": "disable_licm=True",
}
_OUTER = {"flattened": "flatten=True"}
_PRODUCT = {"warps specialised": "warp_specialize=True", "one accumulator": "disallow_acc_multi_buffer=True"}


def add_body_tunables(draft: Draft, function: Node, device: Device) -> None:
    """Add the hints of the first loads and stores, and the options of the first loops, of a kernel's definition.

    The loads of a product have none: they pass through shared memory, and programs share the tiles.
    """
    calls = [node for node in walk(function) if node.type == "call"]
    product = any(_name(call) == "tl.dot" for call in calls)
    loads = [call for call in calls if _name(call) == "tl.load" and not product]
    stores = [call for call in calls if _name(call) == "tl.store"]
    for call in (*loads[:_MOST_LOADS], *stores[:_MOST_STORES]):
        _add_hint(draft, call)
    loops = [node for node in walk(function) if node.type == "for_statement"]
    for loop in loops[:_MOST_LOOPS]:
        _add_loop(draft, loop, device)


@cache
def loop_options() -> frozenset[str]:
    """Return the names of the options of `tl.range` in the installed Triton, read from its text; none without one."""
    found = importlib.util.find_spec("triton")
    places = found.submodule_search_locations if found is not None else None
    core = Path(places[0], "language", "core.py") if places else None
    if core is None or not core.is_file():
        return frozenset()
    head = re.search(r"^class range\b.*?def __init__\((.*?)\):", core.read_text(), re.DOTALL | re.MULTILINE)
    return frozenset(re.findall(r"(\w+)\s*=", head[1])) if head is not None else frozenset()


def _name(call: Node) -> str:
    return words(call.child_by_field_name("function"))


def _given(call: Node) -> tuple[list[Node], Mapping[str, Node]]:
    """Return all arguments of a call, and the named ones, as `name=value`."""
    arguments = call.child_by_field_name("arguments")
    every = list(arguments.named_children) if arguments is not None else []
    return every, {words(n.child_by_field_name("name")): n for n in every if n.type == "keyword_argument"}


def _add_hint(draft: Draft, call: Node) -> None:
    every, named = _given(call)
    hints = [named[name] for name in _HINTS if name in named]
    if not every or len(hints) > 1 or any(node.type in {"dictionary_splat", "comment"} for node in every):
        return
    loads = _name(call) == "tl.load"
    title = f"hint of the {'load' if loads else 'store'} in line {call.start_point.row + 1}"
    known = _LOAD_HINTS if loads else _STORE_HINTS
    quantity = Quantity(f"hint_{call.start_byte}", Kind.CACHE, 0, title, (0, *known), ordered=False)
    if not hints:
        draft.insert(SiteFile.KERNEL, every[-1].end_byte, f", {{{draft.add(quantity)}}}")
        return
    current = Written(words(hints[0].child_by_field_name("value")).strip("\"'"), words(hints[0]))
    others = [one for one in known if one.name != current.name]
    quantity.value, quantity.choices = current, (current, *others)
    draft.site(SiteFile.KERNEL, span_of(hints[0]), f"{{{draft.add(quantity)}}}")


def _add_loop(draft: Draft, loop: Node, device: Device) -> None:
    call, inside = loop.child_by_field_name("right"), list(walk(loop))
    if call is None or call.type != "call" or _name(call) not in {"range", "tl.range"}:
        return
    every, named = _given(call)
    if not every or any(node.type in {"comment", "list_splat", "dictionary_splat"} for node in every):
        return
    inner = sum(node.type == "for_statement" for node in inside) == 1
    options = dict(_INNER if inner else _OUTER)
    if device.capability[0] == _BLACKWELL and any(n.type == "call" and _name(n) == "tl.dot" for n in inside):
        options |= _PRODUCT
    choices = tuple(_with_options(", ".join(map(words, every)), named, options))
    title = f"loop in line {loop.start_point.row + 1}"
    written = Written("as written", words(call))
    quantity = Quantity(f"loop_{loop.start_byte}", Kind.LOOP, written, title, (written, *choices), ordered=False)
    draft.site(SiteFile.KERNEL, span_of(call), f"{{{draft.add(quantity)}}}")


def _with_options(given: str, named: Mapping[str, Node], options: Mapping[str, str]) -> Iterator[Written]:
    """Yield the loop with each option that the installed Triton has and the text does not set."""
    for name, option in options.items():
        if (key := option.partition("=")[0]) in loop_options() and key not in named:
            yield Written(name, f"tl.range({given}, {option})")
