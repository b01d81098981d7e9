"""Names of a kernel as all threads of a block know them, and the spellings of copies to shared memory in its file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Indices
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, assigned, function_names, names
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, text_of, walk

PIPELINE_COMMIT, PIPELINE_WAIT = "__pipeline_commit", "__pipeline_wait_prior"
SIZES = {
    **dict.fromkeys(("char", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("half", "__half", "__nv_bfloat16", "nv_bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int", "half2", "__half2", "__nv_bfloat162", "uint32_t", "int32_t", "unsigned"), 4),
    **dict.fromkeys(("double", "float2", "int2", "uint2"), 8),
    **dict.fromkeys(("float4", "int4", "uint4", "double2"), 16),
}
"""Bytes of types."""

_UNIFORM = {"blockIdx", "blockDim", "gridDim", "min", "max", "sizeof"}
_VECTOR_MACRO = re.compile(r"\(?(?:reinterpret_cast<(?P<new>[^<>]+)>|\(\((?P<old>[^()]+)\))\(&\(\w+\)\)\)?\[0\]\)?")
_INSTRUCTION = re.compile(r"cp\.async\.c[ag]\.shared[\w.:]*global.*?\[%0\], *\[%1\], *(?P<bytes>\d+|%2)\s*;", re.DOTALL)


@dataclass(frozen=True)
class Tile:
    """A static array in shared memory: its name, type and size of an element in bytes, and its extents."""

    name: str
    type: str
    element_bytes: int
    extents: tuple[int, ...]


def element_bytes(tree: KernelTree, name: str) -> int:
    """Return the size of an element's type.

    Raises:
        NotApplicableError: a type of which the size is not known.
    """
    kind = tree.named_type(
        " ".join(word for word in name.split() if word not in ("const", "unsigned", "signed")) or "int"
    )
    if kind not in SIZES:
        raise NotApplicableError(f"the size of `{name}` is not known")
    return SIZES[kind]


@dataclass(frozen=True)
class BlockNames:
    """Names in a kernel, as all threads of a block know them.

    Attributes:
        tree: the kernel.
        shape: threads of the block along x, y and z.
        tiles: the tiles in shared memory, by name.
        own: names that stand for themselves: the variable of the loop around the statements.
        start: byte offset from which on locals have to be read through, as they do not exist before.
        end: byte offset up to which that is so.
    """

    tree: KernelTree
    shape: tuple[int, int, int]
    tiles: Mapping[str, Tile]
    own: frozenset[str]
    start: int
    end: int

    @cached_property
    def sources(self) -> dict[str, str]:
        """Return the type of the elements of each pointer parameter that never changes, by its name."""
        fixed = {p.name for p in self.tree.kernel.parameters} - self._assigned
        return {name: self.tree.named_type(kind) for name, kind in self.tree.pointers.items() if name in fixed}

    @cached_property
    def _assigned(self) -> set[str]:
        return assigned(self.tree.body)

    @cached_property
    def indices(self) -> Indices:
        """Return what reads constants of the file."""
        return Indices(Scopes(self.tree))

    @cached_property
    def _known(self) -> dict[str, bool]:
        return {}

    def is_same_for_all(self, name: str) -> bool:
        """Return True if a name has one value for all threads of a block, from its declaration on."""
        if name not in self._known:
            self._known[name] = False  # while its value is looked at
            value = self.tree.values.get(name)
            if value is not None:
                self._known[name] = self.is_uniform(value)
            elif name not in self.tree.declarations and name not in self._assigned:
                self._known[name] = name in {p.name for p in self.tree.kernel.parameters} or self._is_constant(name)
        return self._known[name]

    def _is_constant(self, name: str) -> bool:
        return any(
            name == text_of(n) for n in walk(self.tree.root) if n.type == "identifier" if self._value(n) is not None
        )

    def _value(self, node: Node) -> int | None:
        return self.indices.of(node).value

    def is_uniform(self, node: Node) -> bool:
        """Return True if an expression has one value for all threads of a block."""
        if any(n.type in ("update_expression", "assignment_expression", "lambda_expression") for n in walk(node)):
            return False
        calls = (text_of(field(n, "function")) for n in walk(node) if n.type == "call_expression")
        if any(called not in _UNIFORM and not called.startswith("static_cast<") for called in calls):
            return False
        return all(name in _UNIFORM or name in self.own or self.is_same_for_all(name) for name in names(node))

    @cached_property
    def async_helpers(self) -> dict[str, int | None]:
        """Return functions of the file that copy by `cp.async`: how many bytes, or None where the third argument says.

        Their first argument is where to, their second one where from.
        """
        found: dict[str, int | None] = {}
        for node in walk(self.tree.root):
            if node.type == "function_definition" and (match := _INSTRUCTION.search(text_of(field(node, "body")))):
                for name in function_names(node):
                    found[name] = int(match["bytes"]) if match["bytes"].isdigit() else None
        return found

    @cached_property
    def vector_macros(self) -> dict[str, str]:
        """Return macros that see an element as the first one of a vector, with the type of the pointer to that."""
        found: dict[str, str] = {}
        for node in walk(self.tree.root):
            value = node.child_by_field_name("value") if node.type == "preproc_function_def" else None
            plain = re.sub(r"\s+(?=\*)", "", text_of(value)).strip() if value is not None else ""
            if match := _VECTOR_MACRO.fullmatch(plain):
                found[text_of(field(node, "name"))] = match["new"] or match["old"]
        return found

    def is_bookkeeping(self, name: str) -> bool:
        """Return True for a call that closes or awaits a group of asynchronous copies: all of them."""
        if name in (PIPELINE_COMMIT, PIPELINE_WAIT):
            return True
        for node in walk(self.tree.root):
            if node.type == "function_definition" and name in function_names(node):
                return (
                    re.search(r"cp\.async\.(commit_group|wait_all|wait_group)", text_of(field(node, "body")))
                    is not None
                )
        return False
