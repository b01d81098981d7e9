"""Drafts a first workload from a kernel file, for its author to read, correct and accept.

A signature tells types, and names suggest meanings, but not what a kernel should compute. The reference of a draft is
that of the well-known function that has the kernel's name, or else the formula in the kernel's own text, if that is one
of single elements, which the draft then says; of any other kernel there is none, and nothing is compared. A draft is
not used until its first line is removed.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from kernel_lsp.errors import SourceError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of, pick_kernel
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.language import source_part
from kernel_lsp.workload.language import PRODUCT, Argument, Drafted, DraftedCall, workload_part
from kernel_lsp.workload.spec import DRAFT

_ROWS = re.compile(r"(?i)^n?_?(rows?|m|batch|b|tokens?|height|h)(_\w+)?$")
_TOTAL = re.compile(r"(?i)n|size|numel|len|length|count|total|n_?elements?|num_?elements?")
_OF_A_ROW = re.compile(r"(?i)(weight|bias|gamma|beta)s?(_ptr)?")
_BIAS = re.compile(r"(?i)b|beta|bias(es)?(_ptr)?")
_MANY, _LARGEST = 4, 1 << 24  # extents; elements
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # of a name like `matrixMulSimple`

# Words of a kernel's name that do not say what it computes.
_NEUTRAL = re.compile(
    r"(?i)(?:(?<=_)|^)(?:kernels?|fwd|forward|triton|cuda|gpu|fused|naive|basic|simple|fast|optimi[sz]ed|online|single|multi"
    r"|blocks?|tiled?|shared|smem|warps?|shuffle|persistent|vec\d*|vectori[sz]ed|rows?|rowwise|per|inner|pass|\d+pass|impl"
    r"|func|fn|op|v?\d+|[bf]\d+|bf16|fp\d+|[bf]16x\d+|float\d*|half)(?=_|$)"
)

# Meaning of well-known names, first match first; {0}, {1} and {2} are the tensors read, {bias} the one of these
# that is called so, {s} the first float.
_KNOWN = (
    (r"rms_?(layer_?)?norm", "{0} * {0}.pow(2).mean(-1, keepdim=True).add({s}).rsqrt() * {1}", 2),
    (r"layer_?norm", "torch.nn.functional.layer_norm({0}, {0}.shape[-1:], {1}, {2}, {s})", 3),
    (r"log_?softmax", "torch.log_softmax({0}, dim=-1)", 1),
    (r"softmax", "torch.softmax({0}, dim=-1)", 1),
    (r"log_?sum_?exp", "torch.logsumexp({0}, dim=-1)", 1),
    (r"s?axpy", "{s} * {0} + {1}", 2),
    (r"swiglu|silu_?(and_)?mul", "torch.nn.functional.silu({0}) * {1}", 2),
    (r"geglu|gelu_?(and_)?mul|geglu_tanh", "torch.nn.functional.gelu({0}) * {1}", 2),
    (r"bias_?gelu", "torch.nn.functional.gelu({0} + {bias})", 2),
    (r"gelu", "torch.nn.functional.gelu({0})", 1),
    (r"silu|swish", "torch.nn.functional.silu({0})", 1),
    (r"relu", "torch.relu({0})", 1),
    (r"relu_?squared?", "torch.relu({0}).square()", 1),
    (r"(?P<f>exp|log|sqrt|rsqrt|sin|cos|tanh|sigmoid|abs|square)", "torch.{f}({0})", 1),
    (r"transpose", "{0}.t().contiguous()", 1),
    (r"s?gemm|mat(rix)?_?mul|m?mm(ul)?", "{0} @ {1}", 2),
    (r"s?gemv|mv|mat_?vec(_?mul)?", "{0} @ {1}", 2),
    (r"(vector|vec|elementwise|residual)?_?add", "{0} + {1}", 2),
    (r"(vector|vec|elementwise)?_?mul", "{0} * {1}", 2),
)

_RIGHT = "`reference` says what is right, and every verdict rests on it."
_COPIED = (
    f"{_RIGHT}\n\nThe formula in `reference` was read off the kernel itself: where the kernel computes another one\n"
    "than it should, write the right one."
)
_UNSAID = (
    "what {kernel} computes is not known.\n\n"
    "So there is no `reference`: `kernel-lsp check` runs the kernel, finds what it does wrong in memory and between\n"
    "threads, and compares its outputs with nothing. To have them compared, and versions judged, write\n"
    "reference({names}), which returns in PyTorch what `launch` should."
)


def draft_for(source: SourceFile, name: str | None = None) -> str:
    """Return the text of a workload for a kernel file, drafted for the named kernel or else the first.

    Raises:
        SourceError: there is no such kernel, or it is CUDA text in a Python file.
    """
    kernels = find_kernels(source.text, source.path)
    if not kernels and name is None:
        raise SourceError("There is no kernel to draft a workload for.", source.path, fix="Name another file.")
    kernel = pick_kernel(kernels, name) if name else kernels[0]
    language = language_of(source.path, source.text)
    if language is not None and source_part(language).launches_itself:
        fix = f"Write {source.path.stem}_problem.py beside it, with Model, get_inputs and get_init_inputs."
        raise SourceError("No workload can be drafted for CUDA text in a Python file.", source.path, fix=fix)
    return draft_workload(source, kernel)


def draft_workload(source: SourceFile, kernel: Kernel) -> str:
    """Return the text of a workload for a kernel file, drafted for one of its kernels.

    It is marked as a draft, and has all parts of a workload but a `reference` that nothing tells. A Triton kernel is
    called through the file's function that launches it, any other by a launch that is read or guessed from its text.
    Where the file does not say what is needed, the draft raises an error that names what to write there.
    """
    drafted = workload_part(kernel.language).draft(source, kernel)
    plan = DraftedCall(tuple(drafted.arguments), drafted.shape) if drafted.shaped else _plan(kernel.name, drafted)
    launch = [*_outputs(plan), *drafted.launch(plan)]
    return _draft(source, kernel, plan, drafted, [*_sizes(plan, launch), *launch])


def _draft(source: SourceFile, kernel: Kernel, plan: DraftedCall, drafted: Drafted, launch: Sequence[str]) -> str:
    names = ", ".join(a.name for a in plan.given)
    extents = plan.cases
    mutated = "".join(f'"{a.name}", ' for a in plan.arguments if a.mutated).rstrip(" ")
    contract = f"CONTRACT = dict(mutates=({mutated}))\n" if mutated else ""
    made = [_open(a.value) if a.role == "open" else f"{a.name} = {_made(a)}" for a in plan.of("input", "open")]
    back = ", ".join(a.value if a.role == "number" else a.name for a in plan.given)
    functions = f"\n\n{drafted.functions}\n" if drafted.functions else ""
    cases = dict.fromkeys(
        (_case(extents, drafted, _small(plan)), _case(extents, drafted, [_large(plan)] * len(extents)))
    )
    guessed = "" if drafted.shaped and not drafted.shape else ", the launch"
    reference, said = _reference(kernel, plan, drafted, source)
    said = said or _UNSAID.format(kernel=kernel.name, names=names)
    head = (
        f"{DRAFT}, made from the text of {kernel.name}. Read it, fix it, then remove this line.\n"
        f'"""How {source.path.name} is called and what it must compute.\n\n'
        f'The sizes{guessed} and the values are guesses; {said}\n"""\n\n'
        f"import torch\n\nCASES = [\n{''.join(cases)}]\n{contract}{functions}"
    )
    returned = drafted.returned or ", ".join(plan.returned) or next((a.name for a in plan.of("input")), "None")
    parts = [
        head,
        _function(f"inputs({', '.join(extents)})", [*made, f"return {back or '()'}"]),
        *([_function(f"reference({names})", [f"return {reference}"])] if reference else []),
        _function(f"launch({', '.join(filter(None, ('module', names)))})", [*launch, f"return {returned}"]),
    ]
    return "\n\n".join(parts)


def _case(extents: Sequence[str], drafted: Drafted, sizes: Sequence[int]) -> str:
    """Return the line of a case with sizes near these, as far as the file allows them."""
    steps, known = drafted.multiples, drafted.known
    said = (f"{n}={known.get(n) or _stepped(size, steps.get(n, 1))}" for n, size in zip(extents, sizes, strict=True))
    return f"    dict({', '.join(said)}),\n"


def _small(plan: DraftedCall) -> list[int]:
    """Return different sizes for a small case, whose product is small too where a tensor has all of them."""
    count = len(plan.cases)
    return [3 + i if _MANY <= len(plan.shape) == count else 7 + 6 * i for i in range(count)]


def _stepped(size: int, step: int) -> int:
    return -(-size // step) * step


def _open(question: str) -> str:
    """A line that holds the place of what the file does not tell."""
    return f"raise NotImplementedError({question!r})"


def _function(head: str, lines: Sequence[str]) -> str:
    return f"def {head}:\n" + "".join(f"    {line}\n" for line in lines)


def _large(plan: DraftedCall) -> int:
    """Return the size of each extent of a large case, such that no tensor grows unreasonably large."""
    rank = max((len(a.shape) for a in plan.arguments if a.is_tensor), default=0)
    if len(plan.cases) == 1:
        return 1024 if rank > 1 else 1 << 20
    product = {name.lower() for name in plan.cases} == set("mnk")
    if len(plan.cases) == 2 or (product and rank == 2):
        return 1024
    return min(64 if len(plan.cases) >= _MANY else _LARGEST, int(_LARGEST ** (1 / max(rank, 3))))


def _reference(kernel: Kernel, plan: DraftedCall, drafted: Drafted, source: SourceFile) -> tuple[str, str]:
    """Return the expression of what is right and what the draft says of it; both are empty where nothing tells it."""
    if drafted.reference:
        return drafted.reference, _RIGHT
    if len(plan.returned) > 1 and not drafted.returned:
        return "", ""  # a well-known function has one result
    body = source.text.encode()[kernel.body.start : kernel.body.end].decode()
    tensors = [a.name for a in plan.of("input")]
    number = next((a.name for a in plan.of("number")), "1e-6")
    bias = next(filter(_BIAS.fullmatch, tensors[1:]), "")
    plain = {_plain(kernel.name), _plain(_HUMP.sub("_", kernel.name))}
    for pattern, meaning, wants in _KNOWN:
        match = next((found for name in plain if (found := re.fullmatch(pattern, name, re.IGNORECASE))), None)
        # A number, or what is still open, that the formula does not have means that it is not the whole of it.
        others = len(plan.of("number", "open")) - ("{s}" in meaning)
        lacks_bias = "{bias}" in meaning and not bias
        if "logsumexp" in meaning and drafted.returned.endswith("]"):
            continue  # of several results of one shape, which of them it is
        if match is not None and len(tensors) == wants and others <= 0 and not lacks_bias:
            said = meaning.format(*tensors, s=number, bias=bias, f=match.groupdict().get("f", "").lower())
            if "gelu(" in said and "tanh" in body:
                said = re.sub(r"gelu\(([^()]*)\)", r'gelu(\1, approximate="tanh")', said)
            return said, _RIGHT
    if formula := drafted.formula(plan):
        return formula, _COPIED
    return "", ""


def _plain(kernel: str) -> str:
    """Return a kernel's name without words that do not say what it computes."""
    return _NEUTRAL.sub("", kernel.rpartition("::")[2]).strip("_")


def _made(argument: Argument) -> str:
    size = ", ".join(argument.shape)
    if argument.dtype == "torch.bool":
        return f'torch.rand({size}, device="cuda") < 0.5'
    if "int" in argument.dtype:
        sizes = f"({size},)" if len(argument.shape) == 1 else f"({size})"
        return f'torch.randint(0, 100, {sizes}, device="cuda", dtype={argument.dtype})'
    return f'torch.randn({size}, device="cuda", dtype={argument.dtype})'


def _plan(kernel: str, drafted: Drafted) -> DraftedCall:
    arguments = drafted.arguments
    extents = [a.name for a in arguments if a.role == "extent"]
    by_letter = {name.lower(): name for name in extents}
    if by_letter.keys() >= {"m", "n", "k"}:
        m, n, k = (by_letter[letter] for letter in "mnk")
        return _shaped(arguments, (m, n), [(m, k), (k, n)])
    if PRODUCT.search(kernel) and not extents:
        return _shaped(arguments, ("m", "n"), [("m", "k"), ("k", "n")])
    plain = _plain(kernel)
    if plain.lower() == "transpose" and 0 < len(extents) < 3:
        rows, columns = (extents[0], extents[-1])
        rows, columns = (columns, rows) if rows == drafted.row_length else (rows, columns)
        return _shaped(arguments, (rows, columns), turned=True)
    if len(extents) > 2:
        return _shaped(arguments, tuple(extents))  # large enough for any of them
    if len(extents) == 2:
        first, second = extents
        return _shaped(arguments, (second, first) if first == drafted.row_length else (first, second))
    if not extents:
        return _shaped(arguments, ("rows", "cols"))
    if _TOTAL.fullmatch(extents[0]):
        return _shaped(arguments, (extents[0],))
    return _shaped(arguments, (extents[0], "cols") if _ROWS.match(extents[0]) else ("rows", extents[0]))


def _shaped(
    arguments: Sequence[Argument],
    shape: tuple[str, ...],
    first: Sequence[tuple[str, ...]] = (),
    *,
    turned: bool = False,
) -> DraftedCall:
    """Return a plan where tensors have `shape`, except inputs with shapes in `first` and those of one row or column.

    Indices tell which these are, else names. Outputs have the extents in reverse if they are `turned`.
    """
    own = iter(first)
    found: list[Argument] = []
    for argument in arguments:
        index = argument.index
        if index is not None and len(shape) == 2 and index.extent in shape:
            along = tuple(extent for extent in shape if (extent == index.extent) is index.column)
            found.append(replace(argument, shape=along))
        elif argument.role == "input":
            row = len(shape) < _MANY - 1 and _OF_A_ROW.fullmatch(argument.name)
            given = next(own, shape[-1:] if row else shape)
            found.append(replace(argument, shape=given))
        else:
            written = shape[::-1] if turned else shape
            found.append(replace(argument, shape=written) if argument.role == "output" else argument)
    return DraftedCall(tuple(found), shape)


def _sizes(plan: DraftedCall, launch: Sequence[str]) -> list[str]:
    """Return lines that read the sizes off the tensors: a launch gets only the arguments of the reference."""
    used = set(re.findall(r"\w+", " ".join(launch)))
    places = {name: f"{a.name}.shape[{i}]" for a in reversed(plan.of("input")) for i, name in enumerate(a.shape)}
    given = {a.name for a in plan.given}
    return [f"{name} = {places.get(name, '1024')}" for name in plan.cases if name in used - given]


def _outputs(plan: DraftedCall) -> list[str]:
    return [f'{a.name} = torch.empty({", ".join(a.shape)}, device="cuda", dtype={a.dtype})' for a in plan.of("output")]
