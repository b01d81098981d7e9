"""Add eviction and cache hints to Triton loads and stores: data used once makes room for data used again."""

from collections import Counter
from collections.abc import Iterator, Mapping

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.triton.ast_triton import TritonTree, arguments, names
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field

_HINTS = ("eviction_policy", "cache_modifier")
_RECIPES: Mapping[str, Mapping[str, str]] = {
    "streamed data evicted first": {
        "streamed": 'eviction_policy="evict_first"',
        "stored": 'eviction_policy="evict_first"',
    },
    "shared data evicted last": {
        "streamed": 'eviction_policy="evict_first"',
        "again": 'eviction_policy="evict_last"',
        "shared": 'eviction_policy="evict_last"',
        "stored": 'eviction_policy="evict_first"',
    },
    "streaming stores": {"stored": 'cache_modifier=".cs"'},
    "loads past L1": {"streamed": 'cache_modifier=".cg"'},
}


def _roles(tree: TritonTree) -> Iterator[tuple[Node, str]]:
    """Yield each access without a hint, and the role of its data.

    `streamed`: read for the last time. `again`: read again by the same program. `shared`: the same for all programs.
    """
    loads = [(call, tree.pointer(arguments(call)[0][0])) for call in tree.calls("load") if arguments(call)[0]]
    left = Counter(pointer for _, pointer in loads)
    for call, pointer in loads:
        left[pointer] -= 1
        positional, named = arguments(call)
        if any(hint in named for hint in _HINTS) or pointer is None:
            continue
        if not (names(positional[0]) & tree.per_program or "program_id" in str(positional[0].text)):
            yield call, "shared"
        else:
            yield call, "again" if left[pointer] else "streamed"
    for call in tree.calls("store"):
        if not any(hint in arguments(call)[1] for hint in _HINTS):
            yield call, "stored"


def _hinted(call: Node, hint: str) -> Edit:
    given = field(call, "arguments")
    last = given.named_children[-1]
    comma = any(c.type == "," and c.start_byte >= last.end_byte for c in given.children)
    at = given.end_byte - 1 if comma and b"\n" not in (given.text or b"") else last.end_byte
    return Edit(Span(at, at), f" {hint}" if comma and at != last.end_byte else f", {hint}")


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with each useful recipe of hints; a matrix product gets hints on stores alone."""
    try:
        tree = TritonTree(kernel_file, kernel)
        roles, recipes = list(_roles(tree)), _RECIPES
        if next(tree.calls("dot"), None) is not None:
            # Its loads pass through shared memory, and tiles that programs share should stay where they are.
            recipes = {label: recipe for label, recipe in recipes.items() if set(recipe) == {"stored"}}
    except LookupError:
        return
    seen = {kernel_file.text}
    for label, recipe in recipes.items():
        text = apply_edits(kernel_file.text, (_hinted(call, recipe[role]) for call, role in roles if role in recipe))
        if text not in seen:
            seen.add(text)
            file = SourceFile(kernel_file.path, text)
            yield Candidate(kernel.language, file, workload_file, label, "rewrite:cache_hints")
