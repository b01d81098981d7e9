"""Finds the kernels and host functions of a CUDA file."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_lsp.source.grammar import blanked, parse_cuda
from kernel_lsp.source.kernel import Kernel, Language, Parameter
from kernel_lsp.source.macros import Macro, arguments, expand, find_macros
from kernel_lsp.source.outline import Declaration, outline
from kernel_lsp.source.text import Span

if TYPE_CHECKING:
    from tree_sitter import Node

_GLOBAL = re.compile(rb"\b__global__\b|\b__attribute__\s*\(\(\s*(?:__)?global(?:__)?\s*\)\)")
_COMMENT = re.compile(rb"//(?:\\\r?\n|[^\n])*|/\*.*?\*/", re.DOTALL)
_BRANCHES_BUT_LAST = re.compile(rb"^[ \t]*#[ \t]*if.*?^[ \t]*#[ \t]*else[^\n]*", re.DOTALL | re.MULTILINE)
_NOT_FOR_HOST = frozenset((b"__global__", b"__device__", b"template"))
_DIRECTIVE = re.compile(rb"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)


def find_cuda_kernels(text: str, path: Path) -> tuple[Kernel, ...]:
    """Return the `__global__` functions that `text` defines, in order, without declarations and explicit
    instantiations.

    A kernel that comes out of a macro of the same file has the span of the macro's call, and of the body after it if
    the macro makes only the head. The body of a kernel is never parsed, so unfinished code in it does no harm.

    Args:
        text: the CUDA source.
        path: put into the records; the file is not read.
    """
    data = text.encode()
    read = outline(data)
    macros = find_macros(data, read.directives)
    return tuple(kernel for made in read.declarations for kernel in _kernels(data, made, macros, path))


def find_host_functions(text: str) -> tuple[str, ...]:
    """Return the qualified names of the functions in `text` that only the host can call, without templates."""
    found: list[str] = []
    for made in outline(text.encode()).declarations:
        if made.body is None or made.declarator is None or made.macro_call or made.words & _NOT_FOR_HOST:
            continue
        found.append(_qualified((*made.scope, made.head[made.declarator[0]].text)))
    return tuple(dict.fromkeys(found))


def _kernels(data: bytes, made: Declaration, macros: dict[bytes, Macro], path: Path) -> Iterator[Kernel]:
    call = made.macro_call
    if call in macros and macros[call].parameters is not None:
        yield from _macro_kernels(data, made, macros, path)
    elif made.body is not None and _is_global(data, made, macros):
        kernel = _kernel(data, made, macros, path)
        if kernel is not None:
            yield kernel


def _is_global(data: bytes, made: Declaration, macros: dict[bytes, Macro]) -> bool:
    if b"__global__" in made.words:
        return True
    if b"__attribute__" not in made.words and not made.words & macros.keys():
        return False
    assert made.body is not None
    return bool(_GLOBAL.search(expand(data[made.span.start : made.body.start], macros)))


def _macro_kernels(data: bytes, made: Declaration, macros: dict[bytes, Macro], path: Path) -> Iterator[Kernel]:
    """Yield the kernels in the expansion of a macro's call, with the span of the call."""
    name = made.head[0]
    expansion = expand(data[name.start : made.head[1].end], macros)
    if not _GLOBAL.search(expansion):
        return
    expansion += b"{}" if made.body else b""
    for inner in outline(expansion).declarations:
        for kernel in _kernels(expansion, inner, {}, path):
            yield Kernel(
                name=kernel.name if kernel.extern_c else _qualified((*made.scope, kernel.name.encode())),
                language=Language.CUDA,
                path=path,
                span=made.span,
                name_span=Span(name.start, name.end),
                body=made.body or Span(made.span.end, made.span.end),
                parameters=kernel.parameters,
                template_parameters=kernel.template_parameters,
                launch_bounds=kernel.launch_bounds,
                extern_c=kernel.extern_c or made.extern_c,
                macro=name.text.decode(),
            )


def _kernel(data: bytes, made: Declaration, macros: dict[bytes, Macro], path: Path) -> Kernel | None:
    assert made.body is not None
    declarator = made.declarator
    if declarator is None:
        return None
    first, last = declarator
    name, group = made.head[first], made.head[last]
    written = data[name.start : group.start]
    plain = expand(written, macros).split(b"<")[0].strip() if made.head[last - 1].text == b"()" else name.text
    # Only specifiers and attributes stand between the template header and the name, and the grammar knows some of them:
    # without them, and without the body, it can parse any head.
    headers = [token for token in made.head[:first] if token.text == b"template"]
    begin = headers[0].start if headers else name.start
    source = bytearray(_one_branch(data[begin : group.end])) + b"{}"
    specifiers = slice((headers[-1].end if headers else begin) - begin, name.start - begin)
    source[specifiers] = blanked(bytes(source[specifiers]))
    source[name.start - begin : group.start - begin] = b"k".ljust(group.start - name.start)
    templates, parameters = _signature(bytes(source))
    extern_c = made.extern_c or b'"C"' in expand(data[made.span.start : name.start], macros)
    return Kernel(
        name=plain.decode() if extern_c else _qualified((*made.scope, plain)),
        language=Language.CUDA,
        path=path,
        span=made.span,
        name_span=Span(name.start, name.end if plain == name.text else group.start),
        body=made.body,
        parameters=parameters,
        template_parameters=templates,
        launch_bounds=_launch_bounds(expand(data[made.span.start : made.body.start], macros)),
        extern_c=extern_c,
    )


def _qualified(names: tuple[bytes, ...]) -> str:
    return b"::".join(name for name in names if name).decode()


def _one_branch(head: bytes) -> bytes:
    """Return a head with only the last branch of each `#if` and no directives; the length is unchanged."""
    for pattern in (_BRANCHES_BUT_LAST, _DIRECTIVE):
        head = pattern.sub(lambda m: blanked(m[0]), head)
    return head


def _launch_bounds(head: bytes) -> tuple[str, ...]:
    match = re.search(rb"\b__launch_bounds__\s*\(", head)
    call = arguments(head, match.end() - 1) if match else None
    return tuple(_squeezed(part) for part in call[0]) if call else ()


@lru_cache(4096)  # an editor sends the whole text with each edit, in which nearly all heads are the same
def _signature(source: bytes) -> tuple[tuple[str, ...], tuple[Parameter, ...]]:
    """Return template parameters and parameters of a function head without specifiers and body."""
    templates: list[str] = []
    parameters: list[Parameter] = []

    def visit(node: "Node") -> None:
        for child in node.named_children:
            if child.type == "template_parameter_list":
                texts = (source[p.start_byte : p.end_byte] for p in child.named_children if p.type != "comment")
                templates.extend(_squeezed(text) for text in texts)
            elif child.type == "parameter_list":
                parameters.extend(_parameter(source, p) for p in child.named_children if "parameter" in p.type)
                return
            elif child.type in ("template_declaration", "function_definition", "function_declarator", "ERROR"):
                visit(child)

    visit(parse_cuda(source).root_node)
    if [(p.name, p.type) for p in parameters] == [("", "void")]:
        parameters.clear()
    return tuple(templates), tuple(parameters)


def _parameter(source: bytes, node: "Node") -> Parameter:
    name = _declared_name(node.child_by_field_name("declarator"))
    default = node.child_by_field_name("default_value")
    end = source.rindex(b"=", node.start_byte, default.start_byte) if default else node.end_byte
    if name is None:
        return Parameter("", _squeezed(source[node.start_byte : end]))
    around = source[node.start_byte : name.start_byte], source[name.end_byte : end]
    return Parameter(source[name.start_byte : name.end_byte].decode(), _squeezed(b"".join(around)))


def _declared_name(node: "Node | None") -> "Node | None":
    """Return the identifier in a declarator, inside its stars, brackets and parentheses."""
    if node is None or node.type == "identifier":
        return node
    inner = node.child_by_field_name("declarator")
    if inner is not None:
        return _declared_name(inner)
    found = (_declared_name(c) for c in node.named_children if c.type == "identifier" or c.type.endswith("declarator"))
    return next(filter(None, found), None)


def _squeezed(text: bytes) -> str:
    """Return the text on one line, with single spaces and without comments."""
    return " ".join(_COMMENT.sub(b" ", text).decode().split())
