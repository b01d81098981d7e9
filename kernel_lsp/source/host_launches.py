"""Reads the kernel launches in C++ host code, `k<float><<<grid, 256>>>(x)`, without running it."""

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_lsp.source.host_templates import calls_of, kinds_of, parameters_of, substituted, switches_in
from kernel_lsp.source.outline import Declaration, code_only, outline
from kernel_lsp.source.python import expression_ast
from kernel_lsp.source.text import behind_brackets, between_commas

_NAME = re.compile(rb"[A-Za-z_][\w:]*\s*\Z")
_DIM3 = re.compile(r"\s*dim3\s*[({](.*)[)}]\s*", re.DOTALL)
_BUILTIN = re.compile(
    r"(?:const\s+)?(?:unsigned\s+|signed\s+)?(?:float|double|int|long|long long|short|char|bool|half|__half|size_t"
    r"|__nv_bfloat16|u?int\d+_t|half2|__half2|float[24]|__nv_bfloat162|unsigned)\s*|true|false"
)
_DISPATCHED = re.compile(r"\bscalar_t(?:_\w+)?\b")  # by AT_DISPATCH_... of PyTorch's, or macros made of it
_OF_ATEN = re.compile(r"(?<![:\w])(?=(?:acc_type|opmath_type)\s*<)")
_SIZES = {"float": 4, "double": 8, "int": 4, "half": 2, "__half": 2, "scalar_t": 4, "float4": 16, "float2": 8}
_SIZEOF = re.compile(r"\bsizeof\s*\(\s*(\w+)\s*\)")
_CAST = re.compile(r"\(\s*(?:unsigned\s+)?(?:int|size_t|unsigned|long)\s*\)|static_cast\s*<\s*[\w\s]+\s*>")
_SUFFIX = re.compile(r"\b(\d+)(?:[uUlL]+|zu)\b")
_COMPUTED = re.compile(r"[\w\s+\-*/%(),.]+")  # from names and numbers
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
_DEEPEST, _DEEPEST_CALL, _MOST_MEANINGS = 8, 2, 4
_LONGEST = 4096  # arguments of a launch, in bytes
_MOST = 1 << 31


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """One launch, as far as its text tells.

    Attributes:
        kernel: the name before `<<<`, with constants of the file and PyTorch's `scalar_t` (as `float`) filled in; of a
            template the plain name where an argument cannot be read.
        arguments: the template's arguments, each None where it cannot be read.
        block: threads in x, y, z; None where they are computed.
        shared_bytes: dynamic shared memory; None where it is computed.
        grid: the expression for the number of blocks; names that are assigned once are replaced by their values, as
            far as these are made of names and numbers, but for those that are arguments.
        passed: the arguments of the call, as they are written.
        threads: the expression for the threads of a block, in the same way.
        partly: the arguments that cannot be read, as far as they are known; None for the others.
        open: the names without a value in `partly`, template parameters of the launching functions and names of
            switches, each with `typename` or its type.
    """

    kernel: str
    arguments: tuple[str | None, ...]
    block: tuple[int, int, int] | None
    shared_bytes: int | None
    grid: str = ""
    passed: tuple[str, ...] = ()
    threads: str = ""
    partly: tuple[str | None, ...] = ()
    open: tuple[tuple[str, str], ...] = ()

    @property
    def instance(self) -> bool:
        """Return True if `kernel` names one instance of a template."""
        return bool(self.arguments) and None not in self.arguments


def find_host_launches(text: str) -> tuple[HostLaunch, ...]:
    """Return the launches in CUDA text, in order, with numbers resolved through names that have a single value.

    A name stands for its only assignment in the function, else for a constant or macro of the file.
    """
    code = code_only(text.encode())
    if b"<<<" not in code:
        return ()
    hosts = [made for made in outline(text.encode()).declarations if made.body is not None]
    everything = code.decode()
    found: list[HostLaunch] = []
    for mark in re.finditer(rb"<<<", code):
        name = _name_before(code, mark.start())
        end = code.find(b">>>", mark.end())
        if name is None or end < 0:
            continue
        around = next((made for made in hosts if made.span.start <= mark.start() < made.span.end), None)
        function = code[around.span.start : mark.start()].decode() if around else ""
        given = between_commas(code[mark.end() : end].decode())
        passed = _passed(code[end + len(b">>>") :][:_LONGEST].decode(errors="ignore"))
        for meaning in _meanings(around, function, everything, hosts):
            scope = _Scope(function, everything, meaning.given, meaning.open)
            kernel, arguments = scope.instance(name)
            shared = scope.number(given[2]) if len(given) > 2 else 0
            block = scope.block(given[1]) if len(given) > 1 else None
            grid, threads = (scope.followed(one, passed) for one in (*given, "")[:2])
            partly = scope.partly(name, arguments)
            found.append(HostLaunch(kernel, arguments, block, shared, grid, passed, threads, *partly))
    return tuple(dict.fromkeys(found))


def constant_of(text: str, name: str) -> int | None:
    """Return the value of a constant or macro of CUDA text that is a number computed from others; else None."""
    return _Scope("", code_only(text.encode()).decode(), {}).number(name)


def _passed(behind: str) -> tuple[str, ...]:
    """Return the arguments of the call that stands at the beginning of a text; empty if none does."""
    call = behind.lstrip()
    given = call[: behind_brackets(call)]
    if not given.startswith("(") or given.count("(") != given.count(")"):
        return ()
    return tuple(part.strip() for part in between_commas(given[1:-1]))


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The values of a function's template parameters in one call, and the names in them that have none."""

    given: Mapping[str, str]
    open: Mapping[str, str]


def _meanings(
    made: Declaration | None, function: str, file: str, hosts: Sequence[Declaration], depth: int = 0
) -> list[_Meaning]:
    """Return what the template parameters of a host function stand for, in each call that says it; else nothing.

    A call may stand in a template itself, which is called elsewhere.
    """
    names = parameters_of(function)
    if made is None or made.declarator is None or not names or depth > _DEEPEST_CALL:
        return [_Meaning({}, {})]
    data = file.encode()
    found: list[_Meaning] = []
    for at, arguments in calls_of(made.head[made.declarator[0]].text.decode(), file):
        place = len(file[:at].encode())
        around = next((one for one in hosts if one.span.start <= place < one.span.end), None)
        # The caller's own aliases stand between its beginning and the call.
        caller = data[around.span.start if around else place : place].decode()
        for meaning in _meanings(around, caller, file, hosts, depth + 1) if around != made else ():
            told = [substituted(one, caller, file, meaning.given) or one for one in arguments]
            given = {name: value for name, value in zip(names, told, strict=False) if value != name}
            found.append(_Meaning(given, {**meaning.open, **_open_in(caller, meaning.given)}))
    return found[:_MOST_MEANINGS] or [_Meaning({}, {})]


def _open_in(function: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the names in the text of a function that nothing gives a value, each with its kind."""
    every = {**kinds_of(function), **switches_in(function)}
    return {name: kind for name, kind in every.items() if name not in given}


def find_named_instances(text: str, kernels: Collection[str]) -> tuple[HostLaunch, ...]:
    """Return the template instances that host code names other than by a launch, as for `cudaLaunchKernelEx`.

    Args:
        text: CUDA text.
        kernels: names of its kernel templates, without namespaces.

    Returns:
        One entry for each place in a function without `__global__`, whose block and shared memory are unknown.
    """
    if not kernels:
        return ()
    code = code_only(text.encode())
    everything = code.decode()
    named = re.compile(rf"\b(?:{'|'.join(map(re.escape, kernels))})\s*<(?!<)".encode())
    hosts = [made for made in outline(text.encode()).declarations if made.body is not None]
    found: list[HostLaunch] = []
    for made in hosts:
        body = made.body if b"__global__" not in made.words else None
        for match in named.finditer(code, body.start, body.end) if body is not None else ():
            name = _with_arguments(code, match.start(), match.end(), len(code))
            if name is not None:
                function = code[made.span.start : match.start()].decode()
                for meaning in _meanings(made, function, everything, hosts):
                    scope = _Scope(function, everything, meaning.given, meaning.open)
                    kernel, arguments = scope.instance(name)
                    partly, names = scope.partly(name, arguments)
                    found.append(HostLaunch(kernel, arguments, None, None, partly=partly, open=names))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Scope:
    """Resolves names at the place of a launch, from the text of its function up to there and of the file.

    `meant` has what the template parameters of the function stand for, and `open` the names in that without a value.
    """

    function: str
    file: str
    meant: Mapping[str, str] = field(default_factory=dict[str, str])
    open: Mapping[str, str] = field(default_factory=dict[str, str])

    def block(self, expression: str, depth: int = 0) -> tuple[int, int, int] | None:
        """Return threads in x, y, z; None if they are computed."""
        if depth > _DEEPEST:
            return None
        if made := _DIM3.fullmatch(expression):
            sizes = [self.number(part) for part in between_commas(made[1])]
            x, y, z, *_ = (*sizes, 1, 1, 1)
            return (x, y, z) if x and y and z else None
        name = expression.strip()
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            value = self._extents(name) or self._value(name)
            if value is not None and "dim3" in value:
                return self.block(value, depth + 1)
        threads = self.number(expression)
        return (threads, 1, 1) if threads else None

    def followed(self, expression: str, kept: Collection[str], depth: int = 0) -> str:
        """Return an expression with names replaced by their values, if each is assigned once, but those to be kept."""

        def meant(word: re.Match[str]) -> str:
            value = None if word[0] in kept or depth > _DEEPEST else self._extents(word[0]) or self._value(word[0])
            if value is None or not _COMPUTED.fullmatch(value):
                return word[0]
            inner = self.followed(value, kept, depth + 1)
            return inner if re.fullmatch(r"\w+|dim3\(.*\)", inner) or word[0] == expression.strip() else f"({inner})"

        return re.sub(r"(?<![.\w])[A-Za-z_]\w*(?![\w(])", meant, expression.strip())

    def _extents(self, name: str) -> str | None:
        """Return what a variable of type `dim3` is made of, if it is declared once."""
        declared = re.findall(rf"\bdim3\s+{name}\s*[({{]([^;]*)[)}}]\s*;", self.function)
        return f"dim3({declared[0]})" if len(declared) == 1 else None

    def number(self, expression: str, depth: int = 0) -> int | None:
        """Return the value of a constant integer expression; None if it is not constant."""
        text = _SIZEOF.sub(lambda m: str(_SIZES.get(m[1], m[0])), expression)
        text = _SUFFIX.sub(r"\1", _CAST.sub("", text)).strip()
        try:
            return self._evaluated(expression_ast(text), depth)
        except (SyntaxError, ValueError, ZeroDivisionError):
            return None

    def instance(self, name: str) -> tuple[str, tuple[str | None, ...]]:
        """Return a kernel's name with resolved template arguments, or without them if one cannot be read; and the
        arguments.
        """
        plain, bracket, rest = name.partition("<")
        if not bracket:
            return name, ()
        arguments = tuple(self._argument(argument.strip()) for argument in between_commas(rest.rstrip()[:-1]))
        known = [argument for argument in arguments if argument is not None]
        whole = f"{plain.strip()}<{', '.join(known)}>"
        return whole if len(known) == len(arguments) else plain.strip(), arguments

    def _argument(self, written: str) -> str | None:
        """Return a template's argument as a type or number; None if it cannot be read."""
        if _BUILTIN.fullmatch(written):
            return written
        if (dispatched := "DISPATCH" in self.function) and _DISPATCHED.fullmatch(written):
            return "float"
        if (number := self.number(written)) is not None:
            return str(number)
        text = substituted(written, self.function, self.file, self.meant)
        if text is not None and dispatched:
            text = _OF_ATEN.sub("at::", _DISPATCHED.sub("float", text))
        # A parameter of the host function that no call has a value for, as where only a macro calls it.
        return None if text is None or self._names_open(text) else text

    def partly(
        self, name: str, arguments: Sequence[str | None]
    ) -> tuple[tuple[str | None, ...], tuple[tuple[str, str], ...]]:
        """Return the template arguments of a kernel that cannot be read, None for others; and their open names' kinds.

        An open name by itself, that no other argument holds, is None too: the kernel's own parameter says as much.
        """
        parts = between_commas(name.partition("<")[2].rstrip()[:-1]) if arguments else []
        written = [substituted(part.strip(), self.function, self.file, self.meant) or part.strip() for part in parts]
        texts = [text if one is None else None for text, one in zip(written, arguments, strict=True)]
        names = {word for text in texts if text and not text.isidentifier() for word in self._names_open(text)}
        texts = [None if text in self._every_open and text not in names else text for text in texts]
        return tuple(texts), tuple(sorted((word, self._every_open[word]) for word in names))

    @property
    def _every_open(self) -> dict[str, str]:
        return {**self.open, **_open_in(self.function, self.meant)}

    def _names_open(self, text: str) -> list[str]:
        every = self._every_open
        return [word for word in dict.fromkeys(re.findall(r"\w+", text)) if word in every]

    def _evaluated(self, node: ast.expr, depth: int) -> int | None:
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                a, b = self._evaluated(left, depth), self._evaluated(right, depth)
                made = None if a is None or b is None else _OPERATORS[type(op)](a, b)
                return made if made is not None and abs(made) < _MOST else None
            case ast.Name(id=name) if depth < _DEEPEST:
                value = self._value(name)
                return None if value is None else self.number(value, depth + 1)
            case _:
                return None

    def _value(self, name: str) -> str | None:
        """Return the expression that a name is assigned, if there is one only, or one in the enclosing branch."""
        assigned = rf"\b{name}\s*=(?!=)\s*([^;]+);"
        constant = rf"\bconst(?:expr)?\b[^;(){{}}=]*{assigned}"
        own = list(re.finditer(assigned, self.function))
        changed = re.search(rf"\b{name}\s*(?:[-+*/%]=|<<=|>>=|\+\+|--)", self.function) is not None
        if len(own) > 1:
            constants = list(re.finditer(constant, self.function))
            seen = [one for one in constants if _is_open(self.function[one.end() :])]
            own = seen[-1:] if len(constants) == len(own) else own
        if own or changed:
            return between_commas(own[0][1])[0] if len(own) == 1 and not changed else None
        everywhere = set(re.findall(constant, self.file))
        everywhere |= set(re.findall(rf"(?m)^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+(.+?)[ \t]*$", self.file))
        return between_commas(everywhere.pop())[0] if len(everywhere) == 1 else None


def _is_open(text: str) -> bool:
    """Return True if the block in which a text begins is still open at its end."""
    depth = 0
    for bracket in re.findall(r"[{}]", text):
        depth += 1 if bracket == "{" else -1
        if depth < 0:
            return False
    return True


def _name_before(code: bytes, end: int) -> str | None:
    """Return the name before a position, with its template arguments; None if there is none."""
    head = code[:end].rstrip()
    start = len(head)
    if head.endswith(b">"):
        depth = 0
        while start > 0:
            start -= 1
            depth += {b">": 1, b"<": -1}.get(head[start : start + 1], 0)
            if depth == 0:
                break
    name = _NAME.search(head[:start])
    return head[name.start() :].decode() if name else None


def _with_arguments(code: bytes, start: int, bracket: int, end: int) -> str | None:
    """Return the name at a position with its template arguments; None if it is launched there, or no `>` follows."""
    depth = 0
    for at in range(bracket - 1, end):
        depth += {b"<": 1, b">": -1, b"(": 1, b")": -1}.get(code[at : at + 1], 0)
        if depth == 0:
            return None if code[at + 1 :].lstrip().startswith(b"<<<") else code[start : at + 1].decode()
    return None
