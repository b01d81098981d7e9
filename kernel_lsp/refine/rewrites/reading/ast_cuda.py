"""Queries on a kernel's syntax tree that the CUDA rewrites share."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tree_sitter import Node, Parser

from kernel_lsp.refine.rewrites.reading.records import struct_members
from kernel_lsp.refine.rewrites.reading.type_names import type_names
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.grammar import cuda_grammar
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, text_of, walk

_PARSER = Parser(cuda_grammar())  # not `parse_cuda`, which blanks text that rewrites copy
_POINTER = re.compile(
    r"(?:const\s+)?(?P<element>[\w:]+(?:\s+\w+)*?)(?:\s+const)?\s*\*\s*(?:const\b\s*)?(?:__restrict(?:__)?)?"
)
_COLLECTIVE = re.compile(
    r"__sync|__shfl|__ballot|__reduce_|__any_|__all_|__match|bar\.sync|cooperative_groups|\bcg::|wmma"
)
LOOPS = ("for_statement", "while_statement", "do_statement")
_WRITES = {"assignment_expression": "left", "update_expression": "argument"}


def names(node: Node) -> set[str]:
    """Return all identifiers in the node."""
    return {text_of(n) for n in walk(node) if n.type == "identifier"}


def written(node: Node) -> Iterator[Node]:
    """Yield the targets of all assignments, increments and decrements in the node."""
    for n in walk(node):
        if n.type in _WRITES and (target := n.child_by_field_name(_WRITES[n.type])):
            yield target


def assigned(node: Node) -> set[str]:
    """Return the variables that are assigned, incremented or have their address taken in the node."""
    found = {text_of(target) for target in written(node) if target.type == "identifier"}
    for n in walk(node):
        if n.type == "pointer_expression" and text_of(n).startswith("&"):
            found |= {text_of(c) for c in n.children if c.type == "identifier"}
    return found


def function_names(definition: Node) -> set[str]:
    """Return the identifiers in the name of a function definition, without those of its parameters."""
    declarator = definition.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":  # `T* f(...)`
        declarator = declarator.child_by_field_name("declarator")
    return names(field(declarator, "declarator")) if declarator is not None else set()


def bare(node: Node) -> Node:
    """Return the expression without enclosing parentheses and arithmetic casts."""
    while True:
        if node.type == "parenthesized_expression" and node.named_child_count == 1:
            node = node.named_children[0]
        elif node.type == "cast_expression":
            node = field(node, "value")
        elif node.type == "call_expression" and text_of(field(node, "function")).startswith("static_cast<"):
            arguments = field(node, "arguments")
            if arguments.named_child_count != 1:
                return node
            node = arguments.named_children[0]
        else:
            return node


def condition_parts(node: Node, operator: str) -> Iterator[Node]:
    """Yield the conditions that an operator joins, without parentheses."""
    if node.type == "condition_clause":
        node = field(node, "value")
    node = bare(node)
    if node.type == "binary_expression" and text_of(field(node, "operator")) == operator:
        yield from condition_parts(field(node, "left"), operator)
        yield from condition_parts(field(node, "right"), operator)
    else:
        yield node


def around(node: Node, within: Node | None = None) -> Iterator[Node]:
    """Yield the nodes around a node, innermost first, inside of `within` or else of the function."""
    parent = node.parent
    while parent is not None and parent != within and parent.type != "function_definition":
        yield parent
        parent = parent.parent


def in_loop(node: Node, within: Node | None = None) -> bool:
    """Return True for a node in a loop, which stands inside of `within` or else of the function."""
    return any(parent.type in LOOPS for parent in around(node, within))


def canonical(node: Node, values: Mapping[str, Node], depth: int = 8) -> str:
    """Return one spelling for expressions that differ only in casts, spaces, order of operands and named constants."""
    node = bare(node)
    if node.type == "identifier" and depth and (value := values.get(text_of(node))):
        return canonical(value, values, depth - 1)
    if node.type == "binary_expression":
        operator = text_of(field(node, "operator"))
        sides = [canonical(field(node, side), values, depth) for side in ("left", "right")]
        if operator in ("+", "*"):
            sides.sort()
        return f"({sides[0]}{operator}{sides[1]})"
    if node.type == "number_literal":
        return text_of(node).rstrip("uUlL")
    return "".join(text_of(node).split())


def statement_texts(node: Node) -> str:
    """Return a statement's text for use between braces: a block loses its own."""
    text = text_of(node)
    return text[1:-1].strip() if node.type == "compound_statement" else text


def only_returns(node: Node) -> bool:
    """Return True for `return;`, in braces or not, whatever comments stand beside it."""
    return comment_free(node) in ("return;", "{return;}")


def statements_of(node: Node) -> list[Node]:
    """Return the statements of a block, or a statement without one; without comments and a `return;` at the end."""
    inner = node.named_children if node.type == "compound_statement" else [node]
    found = [n for n in inner if n.type != "comment"]
    return found[:-1] if len(found) > 1 and only_returns(found[-1]) else found


def comment_free(node: Node) -> str:
    """Return the node's text without comments and white space, for comparing short patterns."""
    return "".join(re.sub(r"//[^\n]*|/\*.*?\*/", "", text_of(node), flags=re.DOTALL).split())


def expression(text: str) -> Node | None:
    """Return a text as an expression; None if it is none."""
    root = _PARSER.parse(f"auto value = {text};".encode()).root_node
    declaration = root.named_children[0] if root.named_child_count == 1 else None
    if declaration is None or declaration.has_error or declaration.type != "declaration":
        return None
    declarator = declaration.child_by_field_name("declarator")
    return declarator.child_by_field_name("value") if declarator is not None else None


@dataclass(frozen=True)
class KernelTree:
    """A kernel of a text with its syntax tree."""

    file: SourceFile
    kernel: Kernel

    @cached_property
    def root(self) -> Node:
        """Return the root node of the whole file."""
        return _PARSER.parse(self.file.text.encode()).root_node

    @cached_property
    def body(self) -> Node:
        """Return the kernel's block.

        Raises:
            LookupError: no such block (a macro's kernel, or text that does not parse).
        """
        node = self.root.descendant_for_byte_range(self.kernel.body.start, self.kernel.body.end)
        if node is None or node.type != "compound_statement" or node.has_error:
            raise LookupError("body")
        return node

    @cached_property
    def declarations(self) -> dict[str, tuple[Node, Node | None]]:
        """Return locals declared exactly once: the declaration (or a loop's variable's loop) and the initial value."""
        seen: dict[str, list[tuple[Node, Node | None]]] = {}
        for node in walk(self.body):
            if node.type == "declaration":
                for declarator in node.children_by_field_name("declarator"):
                    value = declarator.child_by_field_name("value")
                    inner = declared_identifier(declarator)
                    if inner.type == "identifier":
                        seen.setdefault(text_of(inner), []).append((node, value))
        return {name: found[0] for name, found in seen.items() if len(found) == 1}

    @cached_property
    def values(self) -> dict[str, Node]:
        """Return locals that are declared once and never assigned again, with their values."""
        changed = assigned(self.body)
        return {n: value for n, (_, value) in self.declarations.items() if value is not None and n not in changed}

    def canonical(self, node: Node) -> str:
        """Return `canonical` with this kernel's constants."""
        return canonical(node, self.values)

    @cached_property
    def pointers(self) -> dict[str, str]:
        """Return pointers to global (or unknown) memory by name, with their element types without qualifiers."""
        found: dict[str, str] = {}
        for parameter in self.kernel.parameters:
            if (match := _POINTER.fullmatch(parameter.type.strip())) and "volatile" not in parameter.type:
                found[parameter.name] = match["element"]
        for name, (node, value) in self.declarations.items():
            declarators = node.children_by_field_name("declarator")
            if value is None or len(declarators) != 1:
                continue
            kind = text_of(field(node, "type"))
            head = text_of(declarators[0]).split("=")[0]
            if "volatile" in text_of(node) or head.count("*") > 1:
                continue
            if kind == "auto":
                base = next((n for n in names_in_order(value) if n in found), None)
                if base and bare(value).type == "binary_expression":
                    found[name] = found[base]
            elif head.count("*") == 1:
                found[name] = kind
        return found

    def base(self, name: str) -> str:
        """Return the parameter (or array) that a pointer was derived from."""
        for _ in range(8):
            value = self.values.get(name)
            origin = next((n for n in names_in_order(value) if n in self.pointers), None) if value else None
            if origin is None or name not in self.pointers:
                return name
            name = origin
        return name

    @cached_property
    def _collective_functions(self) -> set[str]:
        found: set[str] = set()
        for node in walk(self.root):
            body = node.child_by_field_name("body") if node.type == "function_definition" else None
            if body is not None and _COLLECTIVE.search(text_of(body)):  # `= default;` has none
                found |= function_names(node) - {self.kernel.name}
        return found

    def collective(self, node_or_text: Node | str) -> bool:
        """Return True if threads synchronise in it: barriers, shuffles, votes, or a function of this file with one."""
        text = node_or_text if isinstance(node_or_text, str) else text_of(node_or_text)
        if _COLLECTIVE.search(text):
            return True
        return any(re.search(rf"\b{name}\s*[<(]", text) for name in self._collective_functions)

    @cached_property
    def constants(self) -> dict[str, Node]:
        """Return the values of macros without parameters and of constants of the file that are whole numbers."""
        found: dict[str, Node] = {}
        for node in self.root.children:
            if node.type == "preproc_def" and (value := node.child_by_field_name("value")) is not None:
                if (shown := expression(text_of(value))) is not None:
                    found[text_of(field(node, "name"))] = shown
            elif node.type == "declaration" and re.match(r"(static\s+)?const", text_of(node)):
                for one in node.children_by_field_name("declarator"):
                    if one.type == "init_declarator" and "float" not in text_of(field(node, "type")):
                        found[text_of(field(one, "declarator"))] = field(one, "value")
        return found

    @cached_property
    def constant_arrays(self) -> set[str]:
        """Return the arrays of the file in constant memory, which no kernel can write."""
        made = (n for n in walk(self.root) if n.type == "declaration" and "__constant__" in text_of(n).split("[")[0])
        declarators = (d for n in made for d in n.children_by_field_name("declarator"))
        return {text_of(declared_identifier(d)) for d in declarators if "[" in text_of(d).split("=")[0]}

    @property
    def threads_meet(self) -> bool:
        """Return True if threads of a block synchronise in the kernel, or have shared memory."""
        return self.collective(self.body) or "__shared__" in text_of(self.body)

    @cached_property
    def _aliases(self) -> dict[str, str]:
        """Return what names of types of the file and of the headers beside it stand for."""
        return type_names(self.file, self.root)

    def named_type(self, name: str) -> str:
        """Return the type that a name of the file or its headers stands for; any other type itself."""
        for _ in range(len(self._aliases)):
            if name not in self._aliases:
                break
            name = self._aliases[name]
        return name

    def plain_type(self, name: str) -> str:
        """Return the type that a name stands for, without `const`."""
        return self.named_type(name.replace("const ", "").strip()).replace("const ", "").strip()

    def members(self, name: str) -> dict[str, str]:
        """Return the members of a struct of the file with their types, without arrays; none for any other type."""
        name = name.removeprefix("struct ")
        return self._structs.get(name, self._structs.get(self.named_type(name), {}))

    @cached_property
    def _structs(self) -> dict[str, dict[str, str]]:
        return struct_members(self.root)

    @cached_property
    def type_parameters(self) -> set[str]:
        """Return the names of the kernel's template parameters that are types."""
        shown = (one.split("=")[0].split() for one in self.kernel.template_parameters)
        return {words[-1] for words in shown if len(words) == 2 and words[0] in ("typename", "class")}

    def fresh(self, wanted: str) -> str:
        """Return `wanted`, or a numbered variant that no identifier of the file has."""
        used = {text_of(n) for n in walk(self.root) if n.type in ("identifier", "field_identifier")}
        wanted = re.sub(r"\W+", "_", wanted)  # `a.data`, a member
        name, number = wanted, 2
        while name in used:
            name, number = f"{wanted}{number}", number + 1
        return name

    def edited(self, *edits: Edit) -> "KernelTree":
        """Return the kernel after edits inside its braces or parameter list."""
        text = apply_edits(self.file.text, edits)
        start = sum(grown(e) for e in edits if e.span.end <= self.kernel.body.start)
        end = sum(grown(e) for e in edits)
        body = Span(self.kernel.body.start + start, self.kernel.body.end + end)
        span = Span(self.kernel.span.start, self.kernel.span.end + end)
        return KernelTree(replace(self.file, text=text), replace(self.kernel, span=span, body=body))


def grown(edit: Edit) -> int:
    """Return the number of bytes by which the text grows."""
    return len(edit.text.encode()) - (edit.span.end - edit.span.start)


def names_in_order(node: Node) -> Iterator[str]:
    """Yield all identifiers in the node, in order."""
    return (text_of(n) for n in walk(node) if n.type == "identifier")


def declared_identifier(declarator: Node) -> Node:
    """Return what a declarator declares, within its pointers, arrays and initial value."""
    while (inner := declarator.child_by_field_name("declarator")) is not None:
        declarator = inner
    return declarator


def declared_names(declaration: Node) -> set[str]:
    """Return the names that a declaration declares."""
    return {text_of(declared_identifier(one)) for one in declaration.children_by_field_name("declarator")}


def declaration_head(declaration: Node) -> str:
    """Return a declaration's text before its first declarator, with the blank."""
    first = field(declaration, "declarator")
    return text_of(declaration).encode()[: first.start_byte - declaration.start_byte].decode()


def without_trailing_blanks(text: str) -> str:
    """Return `text` without white space at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.split("\n"))


def indent_at(text: str, offset: int) -> str:
    """Return the white space that begins the line of a byte offset."""
    line = text.encode()[:offset].rsplit(b"\n", 1)[-1].decode()
    return line[: len(line) - len(line.lstrip())]


def body_unit(pad: str) -> str:
    """Return the indent of one level in a body whose statements have the indent `pad`: at most 4 blanks."""
    return min(pad or "    ", "    ", key=len)


def whole_line(text: str, span: Span) -> Span:
    """Return a span with its line and line break, if it is all that stands there."""
    data = text.encode()
    start, end = data.rfind(b"\n", 0, span.start) + 1, data.find(b"\n", span.end)
    alone = end >= 0 and not data[start : span.start].strip() and not data[span.end : end].strip()
    return Span(start, end + 1) if alone else span
