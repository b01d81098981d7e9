"""Find the additions of a kernel's threads to elements that many of them share."""

from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Indices
from kernel_lsp.refine.rewrites.reading.ast_cuda import bare
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.source.trees import field, span_of, text_of, walk

_TYPES = ("int", "unsigned", "unsigned int", "float", "double", "unsigned long long", "unsigned long long int")


@dataclass(frozen=True)
class AtomicAdd:
    """`atomicAdd(address, value);`, whose result nobody takes.

    Attributes:
        call: the call.
        pointer: what the address is counted from.
        indices: what is added to the pointer; nothing for the first element.
        value: summand.
    """

    call: Node
    pointer: CudaVariable
    indices: tuple[Node, ...]
    value: Node

    @property
    def index(self) -> Node | None:
        """Return the element as one expression; None where it is none."""
        return self.indices[0] if len(self.indices) == 1 else None

    @property
    def address(self) -> str:
        """Return the address as text."""
        return text_of(field(self.call, "arguments").named_children[0])


def atomic_adds(use: MemoryUse) -> list[AtomicAdd]:
    """Return all additions of a kernel to arrays that it touches in no other way.

    Arrays of other names are taken for other arrays: what threads read where others add has no certain value.

    Raises:
        NotApplicableError: there are none, or other accesses might see how far they are.
    """
    scopes, found = use.scopes, list[AtomicAdd]()
    for node in walk(scopes.tree.body):
        if node.type == "call_expression" and text_of(field(node, "function")) == "atomicAdd":
            found.append(_addition(scopes, node))
    pointers = [one.pointer for one in found]
    kinds = {one.type.rstrip("*") for one in pointers} - scopes.tree.type_parameters
    if not found or any(scopes.tree.plain_type(kind) not in _TYPES for kind in kinds):
        raise NotApplicableError("no additions")
    added = [span_of(one.call) for one in found]
    for access in use.accesses(scopes.tree.body):
        if access.written and any(span.holds(span_of(access.node)) for span in added):
            continue
        if access.pointer is None or any(access.pointer is one for one in pointers):
            raise NotApplicableError("the sums are touched in another way")
    return found


def _addition(scopes: Scopes, call: Node) -> AtomicAdd:
    given = field(call, "arguments").named_children
    if len(given) != 2 or call.parent is None or call.parent.type != "expression_statement":
        raise NotApplicableError("a result that is used")
    address, indices = bare(given[0]), list[Node]()
    if address.type == "pointer_expression" and text_of(address).startswith("&"):
        element = bare(field(address, "argument"))
        inside = element.child_by_field_name("indices")
        if element.type != "subscript_expression" or inside is None or len(inside.named_children) != 1:
            raise NotApplicableError("an address of another form")
        address, indices = bare(field(element, "argument")), inside.named_children
    while address.type == "binary_expression" and text_of(field(address, "operator")) == "+":
        indices.append(field(address, "right"))
        address = bare(field(address, "left"))
    pointer = scopes.of(address) if address.type == "identifier" else None
    if pointer is None or not pointer.pointer or pointer.declaration is not None or pointer.changes:
        raise NotApplicableError("an address of another form")
    return AtomicAdd(call, pointer, tuple(indices), given[1])


def is_of_block(scopes: Scopes, node: Node) -> bool:
    """Return True for an index that is the same for all threads of a block, and can be named at the body's end."""
    if any(n.type in ("call_expression", "subscript_expression", "update_expression") for n in walk(node)):
        return False
    if "threadIdx" in scopes.tree.canonical(node):
        return False
    for name in (n for n in walk(node) if n.type == "identifier"):
        variable = scopes.of(name)
        if variable is None:
            place = text_of(name) in ("blockIdx", "gridDim", "blockDim")
            if not place and Indices(scopes).of(name).value is None:
                return False
        elif variable.changes or (variable.declaration is not None and not _is_fixed(scopes, variable)):
            return False
    return True


def _is_fixed(scopes: Scopes, variable: CudaVariable) -> bool:
    outer = variable.declaration.parent if variable.declaration is not None else None
    return outer == scopes.tree.body and variable.constant is not None and is_of_block(scopes, variable.constant)
