"""Find the tunables of a Triton kernel: its compile-time sizes, the options of its launch, its autotuner's configs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.tunables.draft import Draft, Quantity, around, is_size
from kernel_lsp.refine.tunables.space import Kind, Limit, SiteFile, Space, Written
from kernel_lsp.refine.tunables.syntax import (
    NumberRole,
    Scope,
    dimensions,
    first,
    integer,
    numbers,
    parse_python,
    python_scope,
    words,
)
from kernel_lsp.refine.tunables.triton_body import add_body_tunables
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.text import Span
from kernel_lsp.source.trees import span_of, walk

_MOST_ELEMENTS = 1 << 20  # tl.TRITON_MAX_TENSOR_NUMEL
_MOST_CONFIGS = 16  # each one is compiled and timed by Triton on every new key
_DEFAULTS = {"num_warps": 4, "num_stages": 3, "maxnreg": 0}  # of triton.compile for NVIDIA GPUs; 0: no bound
_WARPS = (1, 2, 4, 8, 16, 32)
_STAGES = (1, 2, 3, 4, 5, 6, 7)
_REGISTERS = (0, 64, 96, 128, 168)  # of a thread at most: what still lets 1,024, 640, 512 and 384 threads be resident
_REGISTER_FILE = 1 << 16  # of a multiprocessor
_DOT_LEAST = 16  # least extent of each dimension of tl.dot
_PRODUCT = re.compile(r"(?i)(?:block|tile|b)_?(?:size)?_?([mnk])$|^([mnk])_?(?:block|tile)(?:_?size)?$")
# Sizes along m, n and k, warps, stages: what the Triton tutorial and PyTorch's inductor use on Hopper for large
# products of 2-byte types, then smaller tiles for products of few tiles. In the order of promise.
_PRODUCT_CONFIGS = (
    (128, 256, 64, 8, 3),
    (128, 128, 64, 4, 4),
    (64, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 128, 64, 8, 3),
    (256, 128, 64, 8, 3),
    (64, 32, 64, 4, 5),
    (128, 64, 64, 4, 4),
)
_MOST_SINGLE = 6  # lists of one config are for workloads of one shape


@dataclass(frozen=True)
class _Launch:
    """One `kernel[grid](...)`: its arguments by parameter name, and where more may be added."""

    place: SiteFile
    grid: tuple[Node, ...]
    arguments: Mapping[str, Node]
    end: int
    lead: str
    open_ended: bool
    scope: Scope


@dataclass(frozen=True)
class _Config:
    """One `triton.Config`: its constants and options, all integers."""

    constants: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, int], ...]

    @property
    def code(self) -> str:
        """Return its source text."""
        constants = ", ".join(f'"{name}": {value}' for name, value in self.constants)
        return f"triton.Config({{{constants}}}{''.join(f', {name}={value}' for name, value in self.options)})"

    @property
    def name(self) -> str:
        """Return its values as text for the user."""
        return " ".join(f"{name}={value}" for name, value in (*self.constants, *self.options))


def find_tunables(base: Candidate, kernel: str, device: Device) -> Space:
    """Return the settings of a Triton kernel, set by its wrapper or workload, and the hints and loops inside it.

    Args:
        base: the kernel file, and the workload file where that holds the launch.
        kernel: the kernel's name.
        device: the GPU that it is to run on.

    Returns:
        A space without tunables when the kernel is not in the file or nothing in it can be turned.
    """
    root = parse_python(base.kernel.text)
    draft = Draft()
    function = first(
        walk(root),
        lambda node: node.type == "function_definition" and words(node.child_by_field_name("name")) == kernel,
    )
    if function is None:
        return draft.space(base)
    parameters = _parameters(function)
    launches = list(_launches(SiteFile.KERNEL, base.kernel.text, kernel, tuple(parameters)))
    if base.launch is not None and base.launch.path != base.kernel.path:
        launches += _launches(SiteFile.LAUNCH, base.launch.text, kernel, tuple(parameters))

    tuned = _add_configs(draft, root, function)
    least = _DOT_LEAST if "tl.dot" in words(function) else 1
    for name, default in parameters.items():
        if name not in tuned:
            _add_constant(draft, name, default, launches, least)
    if launches:
        _add_option(draft, launches, tuned, "num_warps", Kind.WARPS, _WARPS)
        if any(node.type in {"for_statement", "while_statement"} for node in walk(function)):
            _add_option(draft, launches, tuned, "num_stages", Kind.STAGES, _STAGES)
        _add_option(draft, launches, tuned, "maxnreg", Kind.REGISTERS, _REGISTERS)
        if {"maxnreg", "num_warps"} <= draft.quantities.keys():
            draft.limits.append(Limit("maxnreg * num_warps * 32", 0, _REGISTER_FILE))
    add_body_tunables(draft, function, device)
    persistent = "num_programs" in words(function)
    for launch in launches:
        _link_grid(draft, launch, persistent)
    return draft.space(base)


def _parameters(function: Node) -> dict[str, Node | None]:
    """Return every parameter in order; with the default's node for a `tl.constexpr` that has one."""
    found: dict[str, Node | None] = {}
    parameters = function.child_by_field_name("parameters")
    for node in parameters.named_children if parameters is not None else ():
        name = node.child_by_field_name("name") or first(walk(node), lambda at: at.type == "identifier")
        if name is not None:
            found[words(name)] = node.child_by_field_name("value")
    return found


def _launches(place: SiteFile, text: str, kernel: str, parameters: tuple[str, ...]) -> Iterator[_Launch]:
    root = parse_python(text)
    for node in walk(root):
        called = node.child_by_field_name("function") if node.type == "call" else None
        if called is None or called.type != "subscript":
            continue
        if words(called.child_by_field_name("value")).rpartition(".")[2] != kernel:
            continue
        given = node.child_by_field_name("arguments")
        grid = called.child_by_field_name("subscript")
        if given is None or grid is None:
            continue
        arguments: dict[str, Node] = {}
        listed = [child for child in given.named_children if child.type != "comment"]
        splat = any(child.type in {"list_splat", "dictionary_splat"} for child in listed)
        for index, child in enumerate(listed):
            if child.type == "keyword_argument":
                value = child.child_by_field_name("value")
                if value is not None:
                    arguments[words(child.child_by_field_name("name"))] = value
            elif not splat and index < len(parameters):
                arguments[parameters[index]] = child
        scope = python_scope(root, node)
        yield _Launch(
            place,
            dimensions(grid, scope),
            arguments,
            listed[-1].end_byte if listed else given.start_byte + 1,
            ", " if listed else "",
            any(child.type == "dictionary_splat" for child in listed),
            scope,
        )


def _add_constant(draft: Draft, name: str, default: Node | None, launches: list[_Launch], least: int) -> None:
    """Add a compile-time size: the literal that each launch gives, directly or through a name, or else the default."""
    places: list[tuple[SiteFile, int, Span]] = []
    for launch in launches:
        node = launch.arguments.get(name)
        found = _literal(node, launch.scope) if node is not None else integer(default)
        if found is None:
            return
        places.append((launch.place if node is not None else SiteFile.KERNEL, *found))
    values = {value for _, value, _ in places}
    if len(values) != 1 or not is_size(name, value := values.pop()):
        return
    quantity = Quantity(name, Kind.BLOCK, value, name, around(value, min(least, value), _MOST_ELEMENTS))
    if re.search(r"(?i)group|stage|unroll|split", name):
        quantity.kind, quantity.choices = Kind.SIZE, around(value, 1, 64)
    draft.add(quantity)
    for place, _, at in places:
        draft.site(place, at, f"{{{name}}}")


def _literal(node: Node, scope: Scope) -> tuple[int, Span] | None:
    while node.type == "identifier" and words(node) in scope:
        name = words(node)
        node, scope = scope[name], {key: value for key, value in scope.items() if key != name}
    return integer(node) if node.type == "integer" else None


def _add_option(
    draft: Draft, launches: list[_Launch], tuned: set[str], name: str, kind: Kind, choices: tuple[int, ...]
) -> None:
    """Add an option of a launch: a given literal, an override of a computed value, or the explicit default."""
    if name in tuned or any(launch.open_ended and name not in launch.arguments for launch in launches):
        return
    given = [launch.arguments.get(name) for launch in launches]
    found = [_literal(node, launch.scope) for node, launch in zip(given, launches, strict=True) if node is not None]
    if None in found:
        current, absent = 0, "as computed"
    else:
        values = {literal[0] for literal in found if literal} | ({_DEFAULTS[name]} if None in given else set())
        if len(values) != 1:
            return
        current, absent = values.pop(), "unset"
    quantity = Quantity(name, kind, current, name, tuple(sorted({current, *choices})), absent=absent)
    draft.add(quantity)
    for node, launch in zip(given, launches, strict=True):
        if node is None:
            draft.insert(launch.place, launch.end, f"{launch.lead}{name}={{{name}}}")
        else:
            literal = _literal(node, launch.scope)
            draft.site(launch.place, literal[1] if literal and current else span_of(node), f"{{{name}}}")


def _link_grid(draft: Draft, launch: _Launch, persistent: bool) -> None:
    for node in launch.grid:
        for number in numbers(node, launch.scope):
            if number.role in {NumberRole.DIVISOR, NumberRole.ROUNDING}:
                draft.link(launch.place, number, None)
            elif persistent and number.role in {NumberRole.WHOLE, NumberRole.CAP} and number.value > 1:
                choices = around(number.value, 1, 1 << 16)
                name = draft.add(Quantity("programs", Kind.GRID, number.value, "programs", choices))
                draft.site(launch.place, number.span, f"{{{name}}}")


def _add_configs(draft: Draft, root: Node, function: Node) -> set[str]:
    """Add the list of an autotuner: extended, or fixed to one config; return the names that the configs set."""
    decorated = function.parent
    if decorated is None or decorated.type != "decorated_definition":
        return set()
    decorator = first(
        iter(decorated.children), lambda node: node.type == "decorator" and "autotune" in words(node).partition("(")[0]
    )
    if decorator is None:
        return set()
    call = first(walk(decorator), lambda node: node.type == "argument_list")
    given = call.named_children if call is not None else []
    keyword = next((node for node in given if words(node.child_by_field_name("name")) == "configs"), None)
    listed = keyword.child_by_field_name("value") if keyword is not None else next(iter(given), None)
    if listed is not None and listed.type == "identifier":
        listed = python_scope(root, decorator).get(words(listed))
    if listed is None:
        return set()
    # A computed list cannot be read: assume that it sets every name that it mentions.
    mentioned = set(re.findall(r"\w+", words(listed)))
    if listed.type != "list":
        return mentioned | set(_DEFAULTS)
    configs = [_config(node) for node in listed.named_children if node.type != "comment"]
    known = [config for config in configs if config is not None]
    if not known or len(known) != len(configs):
        return mentioned | set(_DEFAULTS)
    baseline = Written("as written", words(listed))
    product = [config for config in _product_configs(known[0]) if config not in known]
    rich = list(dict.fromkeys([*known, *(product or _neighbours(known))]))[:_MOST_CONFIGS]
    single = [*product, *known][:_MOST_SINGLE] if product else rich
    choices = [_listed(rich, "a richer list")] if len(rich) > len(known) else []
    choices += [_listed([config], config.name) for config in single]
    name = draft.add(Quantity("configs", Kind.AUTOTUNE, baseline, "autotune", (baseline, *choices), ordered=False))
    draft.site(SiteFile.KERNEL, span_of(listed), f"{{{name}}}")
    return mentioned | set(_DEFAULTS)


def _product_configs(like: _Config) -> Iterator[_Config]:
    """Yield configs that tend to win for a matrix product, with the names of a known one; none for other kernels."""
    roles = {
        match[match.lastindex or 0].lower(): name for name, _ in like.constants if (match := _PRODUCT.search(name))
    }
    if roles.keys() != set("mnk"):
        return
    for m, n, k, warps, stages in _PRODUCT_CONFIGS:
        sizes = {roles["m"]: m, roles["n"]: n, roles["k"]: k}
        constants = tuple((name, sizes.get(name, value)) for name, value in like.constants)
        yield _Config(constants, (("num_warps", warps), ("num_stages", stages)))


def _listed(configs: list[_Config], name: str) -> Written:
    return Written(name, f"[{', '.join(config.code for config in configs)}]")


def _config(node: Node) -> _Config | None:
    """Return a `triton.Config` of literal integers; None for anything else."""
    if node.type != "call" or words(node.child_by_field_name("function")).rpartition(".")[2] != "Config":
        return None
    arguments = node.child_by_field_name("arguments")
    constants: list[tuple[str, int]] = []
    options: list[tuple[str, int]] = []
    for argument in arguments.named_children if arguments is not None else ():
        if argument.type == "dictionary":
            for pair in argument.named_children:
                found = integer(pair.child_by_field_name("value"))
                if found is None:
                    return None
                constants.append((words(pair.child_by_field_name("key")).strip("\"'"), found[0]))
        elif argument.type == "keyword_argument" and (found := integer(argument.child_by_field_name("value"))):
            options.append((words(argument.child_by_field_name("name")), found[0]))
        else:
            return None
    return _Config(tuple(constants), tuple(options))


def _neighbours(configs: list[_Config]) -> list[_Config]:
    """Return configs one step from a known one, taking the known ones in turn."""
    rounds = zip_longest(*(_steps(config) for config in configs))
    return [config for step in rounds for config in step if config is not None]


def _steps(config: _Config) -> Iterator[_Config]:
    """Yield `config` with its warps or a size doubled or halved, or one stage more or less."""
    options = {**_DEFAULTS, **dict(config.options)}
    for name, steps in (("num_warps", around(options["num_warps"], 1, 32, reach=1)), ("num_stages", _near(options))):
        for other in steps:
            if other != options[name]:
                yield _Config(config.constants, tuple({**dict(config.options), name: other}.items()))
    for name, value in config.constants:
        for other in around(value, _DOT_LEAST, _MOST_ELEMENTS, reach=1) if is_size(name, value) else ():
            if other != value:
                changed = tuple((key, other if key == name else old) for key, old in config.constants)
                yield _Config(changed, config.options)


def _near(options: Mapping[str, int]) -> tuple[int, ...]:
    stages = options["num_stages"]
    return tuple(stage for stage in (stages - 1, stages + 1) if stage in _STAGES)
