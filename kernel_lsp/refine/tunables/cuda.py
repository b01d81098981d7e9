"""Find the tunables of a CUDA kernel, and of the host code or workload that launches it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.device.architectures import BLOCK_THREADS
from kernel_lsp.device.device import Device
from kernel_lsp.refine.tunables.cuda_hints import add_cache_hints
from kernel_lsp.refine.tunables.draft import Draft, Quantity, around, is_size
from kernel_lsp.refine.tunables.space import Kind, Limit, SiteFile, Space, evaluate
from kernel_lsp.refine.tunables.syntax import (
    Number,
    NumberRole,
    Scope,
    ancestor,
    cuda_scope,
    dimensions,
    first,
    integer,
    numbers,
    parse_cuda,
    parse_python,
    python_scope,
    words,
)
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.text import Span
from kernel_lsp.source.trees import span_of, walk

_MOST_LOOPS = 4
_THREADS = (32, 64, 128, 256, 512, 1024)
_DEFINITIONS = {"preproc_def", "preproc_function_def", "declaration", "function_definition", "struct_specifier"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_INTEGRAL = re.compile(r"\b(int|unsigned|long|short|size_t|u?int\d+_t|auto)\b")


@dataclass(frozen=True)
class _Constant:
    """A constant of the kernel file: a literal with its place, or an expression over others."""

    name: str
    value: int | None
    at: Span
    expression: str


@dataclass(frozen=True)
class _Launch:
    """One launch: the file of its numbers, the kernel, and the expressions given."""

    place: SiteFile
    kernel: str
    template: tuple[tuple[str, Span], ...]
    grid: tuple[Node, ...]
    block: tuple[Node, ...]
    shared: Node | None
    scope: Scope

    @property
    def expressions(self) -> Iterator[Node]:
        """Yield all expressions that the numbers of this launch may come from."""
        yield from (*self.grid, *self.block, *self.scope.values())
        if self.shared is not None:
            yield self.shared


def find_tunables(base: Candidate, kernel: str, device: Device) -> Space:
    """Return the settings of a CUDA kernel, with the numbers of its launches tied to the constants that they repeat.

    Args:
        base: the kernel file, and the workload file where that holds the launch.
        kernel: the kernel's name, with or without namespaces.
        device: the GPU that it is to run on.

    Returns:
        A space without tunables when the kernel is not in the file or nothing in it can be turned.
    """
    root = parse_cuda(base.kernel.text)
    name = _short(kernel)
    definition = _definition(root, name)
    draft = Draft()
    if definition is None:
        return draft.space(base)
    launches = [*_host_launches(root), *(_workload_launches(base.launch.text) if base.launch else ())]
    own = [launch for launch in launches if launch.kernel == name]
    mentions = _mentions(root)
    in_kernel = _reach(mentions, _names(definition))
    in_launches = _reach(mentions, {word for launch in own for node in launch.expressions for word in _names(node)})

    _add_constants(draft, _constants(root, definition), in_kernel | in_launches)
    _add_template_arguments(draft, definition, own)
    for launch in own:
        _link_block(draft, launch)
    for launch in own:
        _link_grid(draft, launch, grid_stride="gridDim" in in_kernel)
    for launch in launches:
        if launch.kernel != name and (other := _definition(root, launch.kernel)) is not None:
            _link_other(draft, launch, _reach(mentions, _names(other)))
    _choose_sizes(draft)
    _link_body(draft, definition)
    _add_launch_bounds(draft, definition, device.limits.threads)
    fixed = {constant.name for constant in _constants(root, definition)} | _template_names(definition)
    _add_unrolling(draft, definition, base.kernel.text, fixed)
    add_cache_hints(draft, definition)
    return draft.space(base)


def _short(name: str) -> str:
    return name.split("<")[0].strip().rpartition("::")[2].rpartition(".")[2]


def _definition(root: Node, name: str) -> Node | None:
    """Return the kernel's function definition, with its template header if it has one."""
    for node in walk(root):
        if node.type != "function_definition" or (declarator := node.child_by_field_name("declarator")) is None:
            continue
        if words(declarator.child_by_field_name("declarator")) == name:
            head = node.text[: declarator.start_byte - node.start_byte] if node.text else b""
            if b"__global__" in head:
                return node.parent if node.parent is not None and node.parent.type == "template_declaration" else node
    return None


def _names(node: Node) -> set[str]:
    return set(_IDENTIFIER.findall(words(node)))


def _mentions(root: Node) -> dict[str, set[str]]:
    """Return the names that each definition outside of functions mentions, by the name it defines."""
    mentions: dict[str, set[str]] = {}
    for node in walk(root):
        if node.type in _DEFINITIONS and ancestor(node, "function_definition") is None:
            mentions.setdefault(_declared(node), set()).update(_names(node))
    return mentions


def _reach(mentions: Mapping[str, set[str]], todo: set[str]) -> set[str]:
    """Return the names `todo` and all names that they depend on."""
    reached: set[str] = set()
    while todo:
        reached |= todo
        todo = {word for name in todo for word in mentions.get(name, ())} - reached
    return reached


def _declared(node: Node) -> str:
    """Return the name that a definition defines; empty if it has none."""
    at: Node | None = node
    while at is not None and at.type not in {"identifier", "type_identifier", "field_identifier"}:
        at = at.child_by_field_name("declarator") or at.child_by_field_name("name")
    return words(at)


def _constants(root: Node, definition: Node) -> Iterator[_Constant]:
    """Yield integral constants that the kernel can see, in file order."""
    for node in walk(root):
        function = ancestor(node, "function_definition")
        if function is not None and not span_of(definition).holds(span_of(function)):
            continue
        match node.type:
            case "preproc_def":
                name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            case "init_declarator" if node.parent is not None and _is_constant(node.parent):
                name, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
            case "field_declaration" if _is_constant(node):
                name, value = node.child_by_field_name("declarator"), node.child_by_field_name("default_value")
            case "enumerator":
                name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            case _:
                continue
        if name is None or value is None or name.type not in {"identifier", "field_identifier"}:
            continue
        number = integer(value)
        if number is None:
            yield _Constant(words(name), None, span_of(value), words(value))
        else:
            yield _Constant(words(name), number[0], number[1], "")


def _is_constant(declaration: Node) -> bool:
    qualifiers = {words(child) for child in declaration.children if child.type in {"type_qualifier", "constexpr"}}
    return bool(qualifiers & {"constexpr", "const"}) and bool(_INTEGRAL.search(words(declaration)))


def _add_constants(draft: Draft, constants: Iterator[_Constant], reach: set[str]) -> None:
    expressions: dict[str, str] = {}
    values: dict[str, int] = {}
    twice: set[str] = set()
    for constant in constants:
        if constant.name in values:
            twice.add(constant.name)
            continue
        if constant.value is not None:
            values[constant.name] = constant.value
            if constant.name in reach and is_size(constant.name, constant.value):
                draft.add(Quantity(constant.name, Kind.SIZE, constant.value, constant.name))
                draft.site(SiteFile.KERNEL, constant.at, f"{{{constant.name}}}")
            continue
        formula = _IDENTIFIER.sub(
            lambda match: f"({expressions[match[0]]})" if match[0] in expressions else match[0],
            re.sub(r"(?<=\d)[uUlL]+", "", constant.expression).replace("/", "//"),
        )
        if (worth := evaluate(formula, values)) is not None:
            expressions[constant.name] = formula
            values[constant.name] = worth
            if all(word in draft.quantities for word in _IDENTIFIER.findall(formula)):
                draft.derived[formula] = worth
    # Alternatives under #if: only the compiler knows which one is active.
    for name in twice & draft.quantities.keys():
        del draft.quantities[name]
        draft.sites = {key: text for key, text in draft.sites.items() if text != f"{{{name}}}"}
        draft.derived = {key: worth for key, worth in draft.derived.items() if name not in _IDENTIFIER.findall(key)}


def _add_template_arguments(draft: Draft, definition: Node, launches: Sequence[_Launch]) -> None:
    header = first(iter(definition.children), lambda node: node.type == "template_parameter_list")
    for index, parameter in enumerate(header.named_children if header is not None else ()):
        if parameter.type not in {"parameter_declaration", "optional_parameter_declaration"}:
            continue
        name = words(parameter.child_by_field_name("declarator"))
        default = integer(parameter.child_by_field_name("default_value"))
        given: list[tuple[SiteFile, int, Span]] = []
        for launch in launches:
            if index < len(launch.template):
                text, at = launch.template[index]
                number = _literal(text, at, launch.scope)
                if number is None:
                    break
                given.append((launch.place, *number))
            elif default is not None:
                given.append((SiteFile.KERNEL, *default))
        else:
            # Several values mean that the host selects one by the size of the problem.
            if len({value for _, value, _ in given}) == 1 and is_size(name, given[0][1]):
                name = draft.add(Quantity(name, Kind.SIZE, given[0][1], name))
                for place, _, at in given:
                    draft.site(place, at, f"{{{name}}}")


def _literal(text: str, at: Span, scope: Scope) -> tuple[int, Span] | None:
    """Return value and place of a template argument: a literal, or a name of the scope that stands for one."""
    name = text.strip().strip("{}").strip()
    if name in scope:
        return integer(scope[name])
    if not (match := re.fullmatch(r"\s*(\d+)\s*", text)):
        return None
    return int(match[1]), Span(at.start + match.start(1), at.start + match.end(1))


def _host_launches(root: Node) -> Iterator[_Launch]:
    """Yield the `<<<grid, block>>>` launches of the file itself."""
    for node in walk(root):
        if node.type != "kernel_call_syntax" or node.parent is None:
            continue
        scope = cuda_scope(node)
        grid, block, *rest = [*node.named_children, None, None][: max(2, len(node.named_children))]
        called = node.parent.child_by_field_name("function")
        if called is None or grid is None or block is None:
            continue
        arguments = first(walk(called), lambda at: at.type == "template_argument_list")
        yield _Launch(
            SiteFile.KERNEL,
            _short(words(called)),
            tuple((words(at), span_of(at)) for at in arguments.named_children) if arguments is not None else (),
            dimensions(grid, scope),
            dimensions(block, scope),
            rest[0] if rest else None,
            scope,
        )


def _workload_launches(text: str) -> Iterator[_Launch]:
    """Yield the `module.kernel[grid, block](...)` launches of a workload."""
    root = parse_python(text)
    for node in walk(root):
        called = node.child_by_field_name("function") if node.type == "call" else None
        if called is None or called.type != "subscript" or (value := called.child_by_field_name("value")) is None:
            continue
        scope = python_scope(root, node)
        given = [child for child in called.children_by_field_name("subscript") if child.is_named]
        if len(given) == 1 and given[0].type == "tuple":
            given = given[0].named_children
        if len(given) < 2:
            continue
        name, template = _workload_kernel(value, scope)
        yield _Launch(
            SiteFile.LAUNCH,
            name,
            template,
            dimensions(given[0], scope),
            dimensions(given[1], scope),
            given[2] if len(given) > 2 else None,
            scope,
        )


def _workload_kernel(node: Node, scope: Scope) -> tuple[str, tuple[tuple[str, Span], ...]]:
    """Return name and template arguments of `module.kernel`, `module["kernel<256>"]` or a variable that holds one."""
    if node.type == "identifier" and words(node) in scope:
        return _workload_kernel(scope[words(node)], scope)
    if node.type != "subscript":
        return _short(words(node)), ()
    string = first(walk(node), lambda at: at.type == "string")
    prefix = first(walk(node), lambda at: at.type == "string_start")
    if string is None or prefix is None:
        return "", ()
    text = words(string)
    name = re.match(r"[\w:\s]*", text[len(words(prefix)) :])
    opening, closing = text.find("<"), text.rfind(">")
    arguments: list[tuple[str, Span]] = []
    at = opening + 1
    for part in re.split(r",(?![^<]*>)", text[at:closing]) if 0 < opening < closing else ():
        start = string.start_byte + len(text[:at].encode())
        arguments.append((part, Span(start, start + len(part.encode()))))
        at += len(part) + 1
    return _short(name[0] if name else ""), tuple(arguments)


def _link_block(draft: Draft, launch: _Launch) -> None:
    """Give each dimension of the block a formula: of the kernel's constants where they agree, else of its own."""
    for axis, node in enumerate(launch.block):
        if len(draft.blocks) <= axis:
            draft.blocks.append(None)
        found = list(numbers(node, launch.scope))
        if len(found) != 1 or found[0].role is not NumberRole.WHOLE:
            draft.blocks[axis] = draft.blocks[axis] or _symbolic(draft, node)
            continue
        number = found[0]
        if (launch.place, number.span) in draft.sites:
            draft.blocks[axis] = draft.sites[launch.place, number.span].strip("{}")
            continue
        formula = _block_formula(draft, number, axis, len(launch.block))
        if formula is None:
            draft.blocks[axis] = str(number.value)
        else:
            draft.blocks[axis] = draft.blocks[axis] or formula
            draft.site(launch.place, number.span, f"{{{formula}}}")


def _symbolic(draft: Draft, node: Node) -> str | None:
    """Return the formula of a block given by the kernel file's own constants (`<<<grid, THREADS>>>`), else None."""
    formula = words(node).replace("/", "//")
    return formula if draft.worth(formula) is not None else None


def _block_formula(draft: Draft, number: Number, axis: int, axes: int) -> str | None:
    value = number.value
    if value < 2:
        return None
    own = draft.blocks[axis]
    if own is not None and draft.worth(own) == value:
        return own
    if number.name in draft.quantities and draft.quantities[number.name].value == value:
        return number.name
    equal = [name for name in draft.equal(value) if draft.quantities[name].kind is Kind.SIZE]
    if equal:
        return draft.tie([name for name in equal if re.search(r"(?i)thread|block", name)] or equal)
    for formula, worth in draft.derived.items():
        if worth == value:
            return formula
    squares = [name for name, quantity in draft.quantities.items() if quantity.value == round(value**0.5)]
    if squares and round(value**0.5) ** 2 == value and axes == 1:
        return f"{squares[0]} * {squares[0]}"
    title = number.name or ("block" if axes == 1 else f"block.{'xyz'[axis]}")
    return draft.add(Quantity(number.name or title.replace(".", "_"), Kind.BLOCK, value, title))


def _link_grid(draft: Draft, launch: _Launch, grid_stride: bool) -> None:
    """Let the numbers of the grid and of the dynamic shared memory follow the quantities they are made of."""
    for axis, node in enumerate(launch.grid):
        for number in numbers(node, launch.scope):
            if number.role in {NumberRole.DIVISOR, NumberRole.ROUNDING}:
                linked = draft.link(launch.place, number, axis)
                if (
                    not linked
                    and number.role is NumberRole.DIVISOR
                    and number.name
                    and is_size(number.name, number.value)
                ):
                    name = draft.add(Quantity(number.name, Kind.SIZE, number.value, number.name))
                    draft.site(launch.place, number.span, f"{{{name}}}")
            elif grid_stride and number.role in {NumberRole.WHOLE, NumberRole.CAP} and number.value > 1:
                name = draft.add(
                    Quantity("blocks", Kind.GRID, number.value, "blocks", around(number.value, 1, 1 << 16))
                )
                draft.site(launch.place, number.span, f"{{{name}}}")
    for axis, node in enumerate(launch.block):
        for number in numbers(node, launch.scope):
            if number.name:
                draft.link(launch.place, number, axis)
    for number in numbers(launch.shared, launch.scope) if launch.shared is not None else ():
        # 2, 4 and 8 are most often sizes of elements.
        if number.value > 8 or number.name:
            draft.link(launch.place, number, 0)


def _link_other(draft: Draft, launch: _Launch, reach: set[str]) -> None:
    """Let the launch of another kernel that shares constants with this one follow these."""
    for node in (*launch.grid, *launch.block):
        for number in numbers(node, launch.scope):
            for offset in (1, 0) if number.role is NumberRole.ROUNDING else (0,):
                equal = [name for name in draft.equal(number.value + offset) if name in reach]
                if equal and number.value > 1:
                    draft.site(launch.place, number.span, f"{{{equal[0]} - {offset}}}")


def _choose_sizes(draft: Draft) -> None:
    """Set the choices of the blocks and of the kernel's sizes, and the bounds of a block."""
    total = _threads(draft)
    for formula in draft.blocks:
        for name in _IDENTIFIER.findall(formula or ""):
            draft.quantities[draft.resolved(name)].kind = Kind.BLOCK
    for name, quantity in draft.quantities.items():
        if quantity.choices or not isinstance(quantity.value, int):
            continue
        near = around(quantity.value, 1, 4096)
        if quantity.kind is Kind.BLOCK and total == name:
            near = tuple(sorted({*_THREADS, quantity.value}))
        quantity.choices = near
    if total is not None:
        draft.limits.append(Limit(total, 1, BLOCK_THREADS))


def _threads(draft: Draft) -> str | None:
    """Return the formula of the number of threads in a block; None if unknown."""
    if not draft.blocks or any(formula is None for formula in draft.blocks):
        return None
    factors = [formula for formula in draft.blocks if formula is not None and formula != "1"]
    return draft.renamed(" * ".join(f if _IDENTIFIER.fullmatch(f) else f"({f})" for f in factors) or "1")


def _link_body(draft: Draft, definition: Node) -> None:
    """Link literals in the kernel that repeat the block's size: launch bounds, shared arrays, reductions, warps."""
    threads = _threads(draft)
    size = draft.worth(threads) if threads is not None else None
    if threads is None or size is None or size < 32:
        return
    for node in walk(definition):
        if node.type == "launch_bounds":
            if (number := integer(next(iter(node.named_children), None))) and number[0] == size:
                draft.site(SiteFile.KERNEL, number[1], f"{{{threads}}}")
        elif node.type == "declaration" and b"__shared__" in (node.text or b""):
            _link_shared(draft, node, threads, size)
        elif node.type == "for_statement" and re.search(r">>=\s*1|/=\s*2", words(node.child_by_field_name("update"))):
            start = first(walk(node), lambda at: at.type == "init_declarator")
            number = integer(start.child_by_field_name("value")) if start is not None else None
            if number is not None and number[0] * 2 == size:
                draft.site(SiteFile.KERNEL, number[1], f"{{({threads}) // 2}}")
    if size >= 64:
        for name, quantity in list(draft.quantities.items()):
            if "warp" in name.lower() and quantity.kind is Kind.SIZE and quantity.value == size // 32:
                del draft.quantities[name]
                for key, text in draft.sites.items():
                    draft.sites[key] = re.sub(rf"\b{name}\b", f"(({threads}) // 32)", text)


def _link_shared(draft: Draft, declaration: Node, threads: str, size: int) -> None:
    arrays = [node for node in walk(declaration) if node.type == "array_declarator"]
    if len(arrays) != 1 or (number := integer(arrays[0].child_by_field_name("size"))) is None:
        return
    name = words(arrays[0].child_by_field_name("declarator"))
    if number[0] == size and not re.search(r"(?i)bin|hist|table|lut", name):
        draft.site(SiteFile.KERNEL, number[1], f"{{{threads}}}")
    elif number[0] > 1 and number[0] * 32 == size and re.search(r"(?i)warp|part|sum|red|max", name):
        draft.site(SiteFile.KERNEL, number[1], f"{{({threads}) // 32}}")


def _add_launch_bounds(draft: Draft, definition: Node, resident: int) -> None:
    """Add the least number of resident blocks, which makes the compiler spend fewer registers.

    A multiprocessor holds `resident` threads at most.
    """
    threads = _threads(draft)
    size = draft.worth(threads) if threads is not None else None
    if threads is None or size is None or "__cluster_dims__" in words(definition):
        return
    bounds = first(walk(definition), lambda node: node.type == "launch_bounds")
    arguments = bounds.named_children if bounds is not None else []
    current = integer(arguments[1]) if len(arguments) > 1 else None
    if len(arguments) > 2 or (len(arguments) == 2 and current is None):
        return
    value = current[0] if current is not None else 0
    choices = {value, 2, 3, 4, 6, 8} | ({1} if current is not None else set[int]())
    quantity = Quantity("min_blocks", Kind.MIN_BLOCKS, value, "resident blocks at least", tuple(sorted(choices)))
    quantity.absent = "unset"
    name = draft.add(quantity)
    draft.limits.append(Limit(f"({threads}) * {name}", 0, resident))
    if current is not None:
        draft.site(SiteFile.KERNEL, current[1], f"{{{name}}}")
    elif arguments:
        draft.insert(SiteFile.KERNEL, arguments[0].end_byte, f", {{{name}}}")
    elif (declarator := first(walk(definition), lambda node: node.type == "function_declarator")) is not None:
        draft.insert(SiteFile.KERNEL, declarator.start_byte, f"__launch_bounds__({{{threads}}}, {{{name}}}) ")


def _template_names(definition: Node) -> set[str]:
    header = first(iter(definition.children), lambda node: node.type == "template_parameter_list")
    parameters = header.named_children if header is not None else []
    return {words(parameter.child_by_field_name("declarator")) for parameter in parameters}


def _add_unrolling(draft: Draft, definition: Node, text: str, fixed: set[str]) -> None:
    """Add `#pragma unroll` before the innermost counting loops, or vary the factor of an existing one.

    A loop to be unrolled completely, with its bound among the constants `fixed`, is not changed: its arrays may live in
    registers for that reason.
    """
    data = text.encode()
    loops = [node for node in walk(definition) if node.type == "for_statement"]
    innermost = [loop for loop in loops if sum(node.type == "for_statement" for node in walk(loop)) == 1]
    for loop in innermost[:_MOST_LOOPS]:
        if not re.search(r"\+\+|\+=|=.*\+", words(loop.child_by_field_name("update"))) or _trips(loop) in range(1, 5):
            continue
        before = loop.prev_named_sibling
        pragma = words(before) if before is not None and before.type == "preproc_call" else ""
        condition = loop.child_by_field_name("condition")
        bound = words(condition.child_by_field_name("right")) if condition is not None else ""
        if bound in fixed and re.fullmatch(r"#\s*pragma\s+unroll\s*", pragma):
            continue
        line = loop.start_point.row + 1
        quantity = Quantity(f"unroll_{line}", Kind.UNROLL, 0, f"unroll of the loop in line {line}", (0, 2, 4, 8, 16))
        if before is not None and (match := re.fullmatch(r"#\s*pragma\s+unroll\b[\s(]*(\d*)\s*\)?\s*", pragma)):
            quantity.value = int(match[1]) if match[1] else 0
            quantity.absent = "by the compiler"
            at = before.start_byte
            if match[1]:
                quantity.choices = tuple(sorted({quantity.value, 1, 2, 4, 8, 16}))
                draft.site(SiteFile.KERNEL, Span(at + match.start(1), at + match.end(1)), f"{{{draft.add(quantity)}}}")
            else:
                draft.insert(SiteFile.KERNEL, at + len(pragma.rstrip()), f" {{{draft.add(quantity)}}}")
        elif (
            "unroll" not in pragma
            and loop.parent is not None
            and loop.parent.type in {"compound_statement", "for_statement"}
        ):
            indent = data[data.rfind(b"\n", 0, loop.start_byte) + 1 : loop.start_byte]
            lead, tail = ("", indent.decode()) if not indent.strip() else ("\n", "")
            draft.insert(SiteFile.KERNEL, loop.start_byte, f"{lead}#pragma unroll {{{draft.add(quantity)}}}\n{tail}")


def _trips(loop: Node) -> int | None:
    """Return how often a loop with literal bounds and step one runs; None for other loops."""
    condition, update = loop.child_by_field_name("condition"), words(loop.child_by_field_name("update"))
    bound = integer(condition.child_by_field_name("right")) if condition is not None else None
    return bound[0] if bound is not None and "++" in update else None
