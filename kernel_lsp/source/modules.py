"""Reads KernelBench's Python files (Ouyang et al., arXiv 2502.10517): problems, answers, and CUDA for `load_inline`."""

import codecs
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from kernel_lsp.source.alignment import on_lines_of
from kernel_lsp.source.grammar import blanked, parse_python, python_grammar
from kernel_lsp.source.text import Lines, Span
from kernel_lsp.source.trees import imported_names, span_of, text_of

if TYPE_CHECKING:
    from tree_sitter import Node, Query

_QUERY = """
(import_statement) @import
(import_from_statement) @import
(call) @call
"""
PROBLEM = frozenset(("Model", "get_inputs", "get_init_inputs"))
"""Names that a problem defines."""
_PARAMETERS = ("name", "cpp_sources", "cuda_sources")
_KINDS: tuple[Literal["cpp"], Literal["cuda"]] = ("cpp", "cuda")
_STRIPS = frozenset(("strip", "lstrip", "rstrip"))
_DEDENTS = frozenset(("dedent", "cleandoc"))
_MOST_LITERALS = 1000
_LINE_BREAK = re.compile(r"\r\n|\n|\r")
_LINE_BREAKS = (b"\r\n", b"\n", b"\r")
_BLANK_BREAKS = bytes.maketrans(b"\n\r\0", b"   ")
_DEVICE_FLAG = re.compile(
    r"""(?x) ["'] (?P<flag>
        --?use_fast_math | --?(?:fmad|ftz|prec-div|prec-sqrt)=(?:true|false) | --?maxrregcount=\d+ | --?std=c\+\+\d\d
      | -D\w+(?:=\w+)? | --?(?:gencode|generate-code|gpu-architecture|arch)(?:=[\w=,\[\]]+)?
      | arch=compute_\w+,code=[\w,\[\]]+ | sm_\w+
    ) ["']"""
)
_EXTENDED_LAMBDA = re.compile(r"extended[-_]lambda")
_SPACES = re.compile(r"(\]\s*)((?:__(?:device|host)__\s*)+)(?=\()")
_TOKEN = re.compile(
    rb"""(?x)
      (?P<escape> \\ (?:
            [0-7]{1,3} | x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | U[0-9a-fA-F]{8} | N\{[^}]*\} | \r\n | [\0-\x7f]
      ) )
    | (?P<end> \r\n | \n | \r )
    | [^\\\r\n]+ | \\
    """
)


@dataclass(frozen=True, slots=True)
class InlineSource:
    """A string literal that is, or is part of, a source given to `load_inline`.

    Attributes:
        call: span of that call; literals of one call are compiled as one file, in this order.
        kind: `cuda` for `cuda_sources`, `cpp` for `cpp_sources`.
        span: the text between the quotes.
        raw: True for a raw string.
        text: the string's value.
    """

    call: Span
    kind: Literal["cuda", "cpp"]
    span: Span
    raw: bool
    text: str


@dataclass(frozen=True, slots=True)
class DeviceUnit:
    """The device code of one call of `load_inline`.

    Attributes:
        call: span of that call.
        text: its CUDA text, on the lines of the file, see `in_place`.
        flags: those of `extra_cuda_cflags` that change device code and that every CUDA compiler understands.
    """

    call: Span
    text: str
    flags: tuple[str, ...]


def is_problem(text: str) -> bool:
    """Return True if a Python file defines `Model`, `get_inputs` and `get_init_inputs` at top level, as
    KernelBench's do.
    """
    return all(name in text for name in PROBLEM) and _defined(text) >= PROBLEM


def is_answer(text: str) -> bool:
    """Return True if a Python file defines a class `ModelNew`."""
    return "ModelNew" in text and "ModelNew" in _defined(text)


def is_torch_file(text: str) -> bool:
    """Return True if a Python file is a problem, an answer, or passes CUDA text to `load_inline`."""
    return is_problem(text) or is_answer(text) or any(source.kind == "cuda" for source in inline_sources(text))


def inline_sources(text: str) -> tuple[InlineSource, ...]:
    """Return the string literals that a Python file passes to `load_inline`, call by call.

    They are followed through names (those of enclosing blocks that are assigned once and for all or extended with
    `+=`), sums, lists, `"".join`, `textwrap.dedent` and `.strip()`. A source that is computed in any other way, an
    f-string above all, is left out as a whole. The file need not be complete.
    """
    if "load_inline" not in text:
        return ()
    from tree_sitter import QueryCursor

    root = parse_python(text.encode()).root_node
    found = QueryCursor(_query()).captures(root)
    names = imported_names(sorted(found.get("import", []), key=lambda node: node.start_byte))
    calls = sorted(found.get("call", []), key=lambda node: node.start_byte)
    return tuple(source for call in calls if _is_load_inline(call, names) for source in _given(call))


def device_view(text: str) -> str:
    r"""Return the CUDA text of a Python file in its place: every other byte is blank, except line breaks.

    The view has the same number of UTF-8 bytes and the same lines, so a compiler's positions hold in the file.
    Lines are always right. Columns are right up to the first escape of a line that is shorter when decoded (`\\n` in a
    string that is not raw): what follows moves left, and the line is filled up at its end. A line break made by an
    escape is a blank.
    """
    return _view(text, [source for source in inline_sources(text) if source.kind == "cuda"])


def device_units(text: str) -> tuple[DeviceUnit, ...]:
    """Return the device code of a Python file, one unit for each call of `load_inline` with CUDA text."""
    sources = [source for source in inline_sources(text) if source.kind == "cuda"]
    units: list[DeviceUnit] = []
    for call in dict.fromkeys(source.call for source in sources):
        given = [source for source in sources if source.call == call]
        written = text.encode()[call.start : call.end].decode()
        flags = [m["flag"] for m in _DEVICE_FLAG.finditer(written)] if "extra_cuda_cflags" in written else []
        code = _on_its_lines(text, given)
        if _EXTENDED_LAMBDA.search(written):
            code = without_spaces_of_lambdas(code)
        units.append(DeviceUnit(call, code, tuple(flags)))
    return tuple(units)


def without_spaces_of_lambdas(text: str) -> str:
    """Return CUDA text without the `__device__` and `__host__` of lambdas, which NVRTC needs in device code."""
    return _SPACES.sub(lambda match: match[1] + " " * len(match[2]), text)


def in_place(text: str, given: str) -> str | None:
    """Return a text passed to `load_inline` on its lines of the Python file; None if it is not found there.

    If each part has lines of its own, in order, and no escape breaks a line in the middle, columns are those
    of `device_view` too, less blanks at the end of lines. Otherwise, and if the text is computed, the lines that stand
    in the file unchanged determine its place, see `on_lines_of`.

    Args:
        text: the Python file.
        given: the text passed.
    """
    wanted = "".join(given.split())
    groups: dict[tuple[Span, str], list[InlineSource]] = {}
    for source in inline_sources(text):
        groups.setdefault((source.call, source.kind), []).append(source)
    for sources in groups.values():
        if wanted and "".join("".join(source.text for source in sources).split()) == wanted:
            return _on_its_lines(text, sources)
    return on_lines_of(text, given)


def _on_its_lines(text: str, sources: Sequence[InlineSource]) -> str:
    lines = Lines(text.encode())
    extents = [(lines.position(source.span.start)[0], lines.position(source.span.end)[0]) for source in sources]
    apart = all(before[1] < after[0] for before, after in pairwise(extents))
    if apart and not any(_breaks_lines(lines.data[s.span.start : s.span.end], s.raw) for s in sources):
        return "\n".join(line.rstrip() for line in _LINE_BREAK.split(_view(text, sources))).rstrip()
    made = "\n".join(source.text for source in sources)
    return on_lines_of(text, made) or "\n" * (extents[0][0] - 1) + made


def _view(text: str, sources: Iterable[InlineSource]) -> str:
    data = text.encode()
    out = bytearray(blanked(data))
    for source in sources:
        written = data[source.span.start : source.span.end]
        out[source.span.start : source.span.end] = _filled_up(written, source.raw)
    return out.decode()


@cache
def _query() -> "Query":
    from tree_sitter import Query

    return Query(python_grammar(), _QUERY)


def _defined(text: str) -> set[str]:
    """Return the names of the functions, classes and variables at the top level of a file."""
    return {name for node in parse_python(text.encode()).root_node.children for name in _names_of(node)}


def _names_of(node: "Node") -> Iterator[str]:
    match node.type:
        case "decorated_definition" | "expression_statement":
            for child in node.children:
                yield from _names_of(child)
        case "function_definition" | "class_definition":
            yield from (text_of(name) for name in node.children_by_field_name("name"))
        case "assignment":
            yield from (text_of(name) for name in node.children_by_field_name("left"))
        case _:
            return


def _is_load_inline(call: "Node", names: dict[str, str]) -> bool:
    function = call.child_by_field_name("function")
    if function is None or function.type not in ("identifier", "attribute"):
        return False
    written = text_of(function)
    return names.get(written, written).rpartition(".")[2] == "load_inline"


def _given(call: "Node") -> Iterator[InlineSource]:
    arguments = call.child_by_field_name("arguments")
    passed: dict[str, Node] = {}
    for at, node in enumerate(_expressions(arguments) if arguments else ()):
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if node.type == "keyword_argument" and name and value:
            passed[text_of(name)] = value
        elif at < len(_PARAMETERS):
            passed[_PARAMETERS[at]] = node
    for kind in _KINDS:
        given = passed.get(f"{kind}_sources")
        for node in (_literals(given) or []) if given else []:
            opening, closing = node.children[0], node.children[-1]
            quotes = text_of(opening).lstrip("rRuU")
            raw = "r" in text_of(opening).lower()
            span = Span(opening.end_byte, closing.end_byte - len(quotes))  # the grammar's end may hold a backslash too
            content = (node.text or b"")[span.start - node.start_byte : span.end - node.start_byte]
            yield InlineSource(span_of(call), kind, span, raw, _decoded(content, raw))


def _expressions(node: "Node") -> "list[Node]":
    return [child for child in node.named_children if child.type != "comment"]


def _literals(node: "Node") -> "list[Node] | None":
    """Return the string literals whose concatenation an expression is; None if it is computed in another way."""
    match node.type:
        case "string":
            plain = not any(child.type == "interpolation" for child in node.children)
            whole = node.children[-1].type == "string_end"
            text = not set("fb") & set(text_of(node.children[0]).lower())
            return [node] if plain and whole and text else None
        case "concatenated_string" | "parenthesized_expression" | "list" | "tuple":
            return _sum(_expressions(node))
        case "binary_operator" if any(child.type == "+" for child in node.children):
            return _sum(_expressions(node))
        case "assignment":  # the value of `a = b = "..."`
            right = node.child_by_field_name("right")
            return _literals(right) if right else None
        case "none":
            return []
        case "call":
            return _literals_of_call(node)
        case "identifier":
            return _assigned(node)
        case _:
            return None


def _sum(nodes: "Iterable[Node]") -> "list[Node] | None":
    found: list[Node] = []
    for node in nodes:
        part = _literals(node)
        if part is None or len(found) + len(part) > _MOST_LITERALS:
            return None
        found += part
    return found


def _literals_of_call(node: "Node") -> "list[Node] | None":
    """Return the literals in a call that changes only white space: `a.strip()`, `textwrap.dedent(a)`, `"".join([a,
    b])`.
    """
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return None
    given = _expressions(arguments)
    owner = function.child_by_field_name("object")
    name = text_of(function).rpartition(".")[2]
    if name in _STRIPS and owner is not None and not given:
        return _literals(owner)
    if name in _DEDENTS and len(given) == 1:
        return _literals(given[0])
    if name == "join" and owner is not None and owner.type == "string" and len(given) == 1:
        joint = text_of(owner).strip("\"'").replace("\\n", "")
        return _literals(given[0]) if not joint.strip() else None
    return None


def _assigned(name: "Node") -> "list[Node] | None":
    """Return the literals that a name stands for: those of its last assignment before, in the nearest block that has
    one.

    Seen from within a function, a name of the module has its value at the end of the module.
    """
    before: int | None = name.start_byte
    crossed = False
    block = name.parent
    while block is not None:
        if block.type == "module" or (block.type == "block" and not (crossed and _is_body_of_class(block))):
            made = [m for m in _assignments(block, text_of(name)) if before is None or m.end_byte <= before]
            if made:
                return _value(made)
        if block.type == "function_definition":
            before, crossed = None, True
        block = block.parent
    return None


def _value(made: "list[Node]") -> "list[Node] | None":
    """Return the literals of a name after these assignments, of which later ones may extend earlier ones."""
    rights = [node.child_by_field_name("right") for node in made]
    first = max((i for i, node in enumerate(made) if node.type == "assignment"), default=None)
    return None if first is None else _sum(right for right in rights[first:] if right)


def _assignments(block: "Node", name: str) -> "Iterator[Node]":
    for statement in block.children:
        for node in statement.children if statement.type == "expression_statement" else ():
            inner: Node | None = node
            while inner is not None and inner.type in ("assignment", "augmented_assignment"):
                left = inner.child_by_field_name("left")
                if left is not None and left.type == "identifier" and text_of(left) == name:
                    yield inner
                inner = inner.child_by_field_name("right")


def _is_body_of_class(block: "Node") -> bool:
    return block.parent is not None and block.parent.type == "class_definition"


def _decoded(content: bytes, raw: bool) -> str:
    """Return the string that Python makes of the bytes between the quotes."""
    unix = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if raw:
        return unix.decode()
    return b"".join(_unescaped(t[0]) if t["escape"] else t[0] for t in _TOKEN.finditer(unix)).decode()


def _unescaped(written: bytes) -> bytes:
    """Return the UTF-8 bytes that one escape stands for; empty for an escaped line break."""
    if written[1:] in _LINE_BREAKS:
        return b""
    try:
        with warnings.catch_warnings(action="ignore"):  # about backslashes that escape nothing
            return codecs.decode(written, "unicode_escape").encode(errors="replace")
    except UnicodeDecodeError:
        return written


def _breaks_lines(content: bytes, raw: bool) -> bool:
    """Return True if an escape stands for a line break that is followed by more text on its line."""
    broken = False
    for token in () if raw else _TOKEN.finditer(content):
        escape = token["escape"]
        made = _unescaped(escape) if escape else token[0]
        if token["end"] is not None or (escape is not None and escape[1:] in _LINE_BREAKS):
            broken = False
        elif broken and made.strip():
            return True
        elif escape is not None:
            broken = broken or made in _LINE_BREAKS
    return False


def _filled_up(content: bytes, raw: bool) -> bytes:
    """Return the decoded text with each line padded to the bytes that it takes in the file."""
    if raw:
        return content
    out = bytearray()
    line, begin = b"", 0
    for token in _TOKEN.finditer(content):
        escape, end = token["escape"], token["end"]
        if escape is None and end is None:
            line += token[0]
        elif escape is not None and escape[1:] not in _LINE_BREAKS:
            line += _unescaped(escape).translate(_BLANK_BREAKS)
        else:  # Python joins lines at a backslash, as C++ does
            line += b"\\" if escape is not None else b""
            out += _filled(line, token.end() - begin - len(end or token[0][1:])) + (end or token[0][1:])
            line, begin = b"", token.end()
    return bytes(out + _filled(line, len(content) - begin))


def _filled(line: bytes, width: int) -> bytes:
    """Return a line padded with blanks, placed before a backslash that joins it to the next line."""
    joins = (len(line) - len(line.rstrip(b"\\"))) % 2
    kept = len(line) - joins
    return line[:kept].ljust(width - joins) + line[kept:]
