"""Template arguments to compile a CUDA template with where no launch names an instance.

An argument is taken from a launch in the file, else from the parameter's default, else it is a class of the file where
one is wanted, else a usual value for the parameter's name. Assumed arguments are reported with the kernel's facts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kernel_lsp.source.cuda_classes import Class, template_argument, type_argument
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import behind_brackets, between_commas

_TYPE = re.compile(r"(?:typename|class)\b\s*(?P<pack>\.\.\.)?\s*(?P<name>\w+)?\s*(?:=\s*(?P<default>.+))?", re.DOTALL)
_VALUE = re.compile(r"(?P<kind>.+?)\s*(?P<pack>\.\.\.)?\s*\b(?P<name>\w+)\s*(?:=\s*(?P<default>.+))?", re.DOTALL)
FUNCTION = re.compile(r"[^()]+\(\s*[*&]\s*(?P<name>\w+)\s*\)\s*\(.*\)", re.DOTALL)
"""A parameter that is a function: `float (*Act)(float, const Scale &)`."""
_WHOLE = re.compile(r"(?:(?:unsigned|signed|long|short|int|char|size_t|uint|u?int\d+_t)\b\s*)+")
_USUAL = (
    (r"threads|block_?size|^tpb$", 256),
    (r"warp_?size|lanes", 32),
    (r"warps?$|num_?warp", 4),
    (r"stages?$", 2),
    (r"head_?dim|hdim", 64),
    (r"^b[mn]$|(block|tile)_?[mn]$", 64),
    (r"^w[mn]$", 32),
    (r"^b?k$|(block|tile)_?k$|^t[mn]$|thread_?[mn]$", 8),
    (r"iter", 1),
    (r"vec|pack|unroll|per_thread|ilp", 4),
    (r"block|tile|dim|size|len", 32),
)
_ATTEMPTS: tuple[tuple[str, int | None], ...] = (
    ("float", None),
    ("__half", None),
    ("__half2", None),
    ("float", 16),
    ("int", 32),
    ("float", 1),
    ("float4", 8),
)
"""For each attempt the type to use for type parameters and the number for integers; None: by the parameter's name."""
ATTEMPTS = len(_ATTEMPTS)
_ENUMERATORS = 3  # of an enumeration, that are tried in turn
_FIRST = re.compile(r"(?<![:\w])[A-Za-z_]\w*")  # of a name: `ops` of `ops::Add`
_UNSCOPED = re.compile(rf"{_FIRST.pattern}(?!\w|\s*::)")
_PLAIN_WORDS = frozenset(
    (
        *(
            "bool",
            "char",
            "const",
            "double",
            "false",
            "float",
            "float2",
            "float4",
            "half",
            "half2",
            "__half",
            "__half2",
        ),
        *("int", "long", "nullptr", "short", "signed", "size_t", "true", "unsigned", "void"),
        *("__nv_bfloat16", "__nv_bfloat162", "int8_t", "int16_t", "int32_t", "int64_t"),
        *("uint8_t", "uint16_t", "uint32_t", "uint64_t"),
    )
)
# A type of numbers that count: `IdType`, but not `IType`, which is that of an input.
_INDEX = re.compile(r"(?i)^i(?:nd|dx)?_?t$|^id_?t(?:ype)?$|idx|index|stride|offset|size")


def instance_of(
    kernel: Kernel,
    told: Sequence[str | None],
    attempt: int,
    classes: tuple[Class, ...] = (),
    unknown: Mapping[str, str] = MappingProxyType({}),
    asked: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> tuple[str, tuple[str, ...]] | None:
    """Return one instance of a template, as a launch would write it, and what was assumed for it, such as `T=float`.

    Args:
        kernel: the template.
        told: the arguments that a launch in the file gives, None for those that cannot be read; fewer than there are.
        attempt: below `ATTEMPTS`; which usual values to take.
        classes: those of the file.
        unknown: names in `told` that nothing gives a value, each with `typename` or its type.
        asked: the members that the kernel asks of its type parameters.

    Returns:
        None where nothing can be assumed for a parameter: a template, of which the file has none that fits.
    """
    own = {*names_of(kernel)}
    arguments: list[str] = []
    assumed: list[str] = []
    for at, text in enumerate(kernel.template_parameters):
        parameter = text.strip()
        if parameter.startswith("template"):
            given = template_argument(parameter, kernel.name, classes, attempt)
            if given is None:
                return None
            arguments.append(given)
            assumed.append(f"{parameter.split()[-1]}={given}")
            continue
        if (function := FUNCTION.fullmatch(parameter)) is not None:
            given = told[at] if at < len(told) else None
            arguments.append(given or "nullptr")
            assumed += [] if given else [f"{function['name']}=nullptr"]
            continue
        found = _TYPE.fullmatch(parameter) or _VALUE.fullmatch(parameter)
        if found is None or "<" in parameter.partition("=")[0]:
            return None
        if found["pack"]:
            break
        written = told[at] if at < len(told) else found["default"]
        if at >= len(told) and written and not own.isdisjoint(re.findall(r"\w+", written)):
            break  # later parameters follow from the arguments of the call
        if written is None:
            name = found["name"] or ""
            if parameter.startswith(("typename", "class")) or _is_a_type(name, kernel):
                fitting = type_argument(name, asked.get(name, frozenset()), kernel.name, classes, attempt)
                usual = _usual(name, "typename", attempt) if fitting is None else _of_class(fitting, attempt)
            else:
                usual = _usual(name, found["kind"], attempt)
            written = found["default"] or usual
            assumed.append(f"{found['name'] or 'a type'}={written}")
        for name in dict.fromkeys(_UNSCOPED.findall(written)):
            if name in unknown:
                usual = _usual(name, unknown[name], attempt)
                written = re.sub(rf"(?<![:\w]){name}\b", usual, written)
                assumed.append(f"{name}={usual}")
        arguments.append(written)
    assumed = list(dict.fromkeys(assumed))
    return f"{kernel.name}<{', '.join(arguments)}>", tuple(assumed)


def _is_a_type(name: str, kernel: Kernel) -> bool:
    """Return True if a parameter of a kernel is declared with a template parameter, as with that of a concept."""
    return any(re.search(rf"\b{name}\b", re.sub(r"<.*>", "", one.type)) for one in kernel.parameters)


def _usual(name: str, declared: str, attempt: int) -> str:
    """Return a usual type or value of a template parameter that is declared as `typename` or with a type."""
    kind, number = _ATTEMPTS[attempt]
    if declared in ("typename", "class"):
        return "int" if _INDEX.search(name) else kind
    return _value(declared, name, number, attempt % _ENUMERATORS)


def _of_class(made: Class, attempt: int) -> str:
    """Return a class as an argument, of a template with usual arguments of its own."""
    given: list[str] = []
    for text in made.parameters:
        if (found := _TYPE.fullmatch(text) or _VALUE.fullmatch(text)) is None or found["pack"] or found["default"]:
            break
        given.append(_usual(found["name"] or "", found.groupdict().get("kind") or "typename", attempt))
    return f"{made.name}<{', '.join(given)}>" if made.parameters else made.name


def names_in_arguments(arguments: Iterable[str | None]) -> frozenset[str]:
    """Return the names in template arguments that neither C++ nor a namespace gives a meaning, such as `scalar_t`."""
    return frozenset(name for one in arguments for name in _UNSCOPED.findall(one or "")) - _PLAIN_WORDS


def overload_of(kernel: Kernel, instance: str) -> str:
    """Return an expression for the instance of one of several templates of the same name, told by its parameters.

    It is a name where the types of the parameters depend on more than the template's arguments.
    """
    names = names_of(kernel)
    given = between_commas(instance.partition("<")[2][:-1], "<([", ">)]")
    arguments = dict(zip(names, (one.strip() for one in given), strict=False))
    if any("..." in text for text in kernel.template_parameters) or len(arguments) < len(names):
        return instance
    types = [re.sub(r"\w+", lambda word: arguments.get(word[0], word[0]), one.type) for one in kernel.parameters]
    plain = [re.sub(r"\b__(?:restrict|grid_constant)__\b", "", one).strip() for one in types]
    return f"(void (*)({', '.join(plain)})){instance}"


def scopes_of(instances: Iterable[str], *, nested: bool = False) -> tuple[str, ...]:
    """Return the namespaces of templates whose arguments are names without one: these are meant to be looked up there.

    Args:
        instances: as launches, or `overload_of`, write them.
        nested: whether names with a namespace are looked up there too, as `ops` of `ops::Add`.
    """
    looked_up = _FIRST if nested else _UNSCOPED
    found: list[str] = []
    for instance in instances:
        plain, _, arguments = without_cast(instance).partition("<")
        parts = plain.split("::")[:-1]
        if set(looked_up.findall(arguments)) - _PLAIN_WORDS:
            found += ["::".join(parts[: at + 1]) for at in range(len(parts))]
    return tuple(dict.fromkeys(one for one in found if one))


def without_cast(expression: str) -> str:
    """Return the instance in an expression that `overload_of` has made."""
    return expression if not expression.startswith("(") else expression[behind_brackets(expression) :]


def names_of(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of a kernel's template parameters."""
    return tuple(_name_of(text) for text in kernel.template_parameters)


def _name_of(parameter: str) -> str:
    """Return the name of a template parameter; its last word where it has none."""
    function = FUNCTION.fullmatch(parameter.strip())
    return function["name"] if function else parameter.partition("=")[0].split()[-1]


def usual_number(name: str, other: int = 32) -> int:
    """Return a usual value of a constant that is called so; `other` where the name tells nothing."""
    return next((value for pattern, value in _USUAL if re.search(pattern, name, re.IGNORECASE)), other)


def _value(kind: str, name: str, number: int | None, enumerator: int) -> str:
    """Return a value for a template parameter that is not a type; one of an enumeration as its number."""
    plain = re.sub(r"\b(?:const|constexpr)\b", "", kind).strip()
    if plain == "bool":
        return "false" if number is None else "true"
    if not _WHOLE.fullmatch(plain):
        return f"({plain}){enumerator}"
    return str(usual_number(name, 4) if number is None else number)
