"""Instructions of a warp's tensor cores, as inline PTX, functions and macros of a file spell them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node, Parser

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, declared_identifier, function_names
from kernel_lsp.source.grammar import cuda_grammar
from kernel_lsp.source.trees import field, text_of, walk

_PARSER = Parser(cuda_grammar())
_INSTRUCTION = re.compile(r"(?P<name>(?:mma|ldmatrix)\.[\w.:]+)(?P<operands>[{\[][^;]*);")
_GROUP = re.compile(r"[{\[]([^}\]]*)[}\]]")


@dataclass(frozen=True)
class WarpInstruction:
    """One instruction, where it is used.

    Attributes:
        name: its full name in PTX.
        operands: the expressions in each pair of its braces or brackets.
        given: what the names in these stand for, where the instruction is in a function.
    """

    name: str
    operands: tuple[tuple[Node, ...], ...]
    given: "GivenNames"


@dataclass(frozen=True)
class GivenNames:
    """Arguments of a function's parameters, and values of its locals, which its parameters may be used in."""

    arguments: Mapping[str, Node]
    locals: Mapping[str, Node]


NOTHING = GivenNames({}, {})
"""What is given to the kernel's own text."""


@dataclass(frozen=True)
class _Function:
    """A function or macro that is one instruction: its parameters, and locals with their values."""

    parameters: tuple[str, ...]
    values: Mapping[str, Node]
    asm: Node


@dataclass(frozen=True)
class WarpInstructions:
    """Reads the instructions of a file."""

    tree: KernelTree

    def of(self, node: Node) -> WarpInstruction | None:
        """Return the instruction that an `asm` or a call is; None for anything else."""
        if node.type == "gnu_asm_expression":
            return _instruction(node, NOTHING)
        called = self._functions.get(text_of(field(node, "function"))) if node.type == "call_expression" else None
        if called is None:
            return None
        given = [one for one in field(node, "arguments").named_children if one.type != "comment"]
        if len(given) != len(called.parameters):
            return None
        return _instruction(called.asm, GivenNames(dict(zip(called.parameters, given, strict=True)), called.values))

    @cached_property
    def address_functions(self) -> set[str]:
        """Return what turns a pointer into an address in shared memory: CUDA's function, and those that return it."""
        found = {"__cvta_generic_to_shared"}
        for node in walk(self.tree.root):
            if node.type == "function_definition" and (body := node.child_by_field_name("body")) is not None:
                only = body.named_children[0] if body.named_child_count == 1 else None
                if (
                    only is not None
                    and only.type == "return_statement"
                    and "__cvta_generic_to_shared(" in text_of(only)
                ):
                    found |= function_names(node)
        return found

    @cached_property
    def _functions(self) -> dict[str, _Function]:
        return {name: one for node in walk(self.tree.root) for name, one in _functions_at(node)}


def _functions_at(node: Node) -> Iterator[tuple[str, _Function]]:
    """Yield the function or macro that a node defines, if that is one instruction."""
    if node.type == "preproc_function_def" and (value := node.child_by_field_name("value")) is not None:
        parameters = tuple(text_of(one) for one in field(node, "parameters").named_children)
        text = re.sub(r"\\\r?\n", " ", text_of(value)).rstrip().rstrip(";")
        body = _PARSER.parse(f"void f() {{ {text}; }}".encode()).root_node
        yield from _only_asm(body, text_of(field(node, "name")), parameters)
    elif node.type == "function_definition" and "asm" in text_of(node):
        head = next((n for n in walk(field(node, "declarator")) if n.type == "function_declarator"), None)
        if head is not None:
            shown = [one for one in field(head, "parameters").named_children if one.type == "parameter_declaration"]
            named = [one.child_by_field_name("declarator") for one in shown]
            parameters = tuple(_named(one) for one in named if one is not None)
            for name in function_names(node):
                yield from _only_asm(field(node, "body"), name, parameters)


def _named(declarator: Node) -> str:
    """Return the parameter that a declarator names, which may be a reference or an array."""
    return next((text_of(n) for n in walk(declarator) if n.type == "identifier"), "")


def _only_asm(body: Node, name: str, parameters: tuple[str, ...]) -> Iterator[tuple[str, _Function]]:
    """Yield a function whose body is one `asm`, after declarations with values."""
    found = [node for node in walk(body) if node.type == "gnu_asm_expression"]
    calm = all(n.type not in ("for_statement", "if_statement", "assignment_expression") for n in walk(body))
    if len(found) == 1 and calm:
        values = {
            text_of(declared_identifier(one)): value
            for node in walk(body)
            if node.type == "declaration"
            for one in node.children_by_field_name("declarator")
            if (value := one.child_by_field_name("value")) is not None
        }
        yield name, _Function(parameters, values, found[0])


def _instruction(asm: Node, given: GivenNames) -> WarpInstruction | None:
    """Return the only instruction of an `asm`, if it is one of those that are read here."""
    code = "".join(text_of(n) for n in walk(field(asm, "assembly_code")) if n.type == "string_content")
    match = _INSTRUCTION.fullmatch("".join(code.split()))
    if match is None:
        return None
    values = [
        field(one, "value")
        for part in ("output_operands", "input_operands")
        if (listed := asm.child_by_field_name(part)) is not None
        for one in listed.children_by_field_name("operand")
    ]
    groups: list[tuple[Node, ...]] = []
    for group in _GROUP.findall(match["operands"]):
        places = re.findall(r"%(\d+)", group)
        if len(places) != group.count(",") + 1 or any(int(at) >= len(values) for at in places):
            return None
        groups.append(tuple(values[int(at)] for at in places))
    return WarpInstruction(match["name"], tuple(groups), given)
