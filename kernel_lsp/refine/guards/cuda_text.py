"""Guards in CUDA: at the head of the kernel, over arguments that all of its threads share, before its unchanged body.

Grid and block are chosen before the kernel runs, so a variant that is launched with others cannot stand behind such a
guard. The variant of the kernel becomes a `__device__` function beside it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_lsp.refine.guards.predicate import GuardQuantity, Predicate, QuantityKind
from kernel_lsp.refine.guards.site import NotGuardedError, VariantChange, comment, distinct, suffix
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Kernel, base_name
from kernel_lsp.source.outline import Declaration, code_only, outline
from kernel_lsp.source.text import Edit, Span, apply_edits, indent_unit

_INCLUDE = re.compile(r"\s*#\s*include\b")
_DEFINE = re.compile(r"\s*#\s*define\s+(\w+)")
_QUALIFIERS = re.compile(r"\b(?:const|__restrict__|__restrict)\b|\s+")
_AXES = ("x", "y", "z")


class CudaGuards:
    """Guarded dispatch for CUDA files in which one kernel changes, and not how it is launched."""

    def quantities(self, change: VariantChange) -> list[GuardQuantity]:
        """Return the whole numbers that the kernel is launched with, and the extents of its grid."""
        kernel, _ = changed_kernel(change)
        launches = [[one for one in case.launches if base_name(one.kernel) == kernel.name] for case in change.cases]
        if any(len({(one.grid, one.arguments) for one in of_case}) != 1 for of_case in launches):
            raise NotGuardedError(f"it is not known with what `{kernel.name}` is launched, or with several things")
        first = [of_case[0] for of_case in launches]
        found: list[GuardQuantity] = []
        for at, parameter in enumerate(kernel.parameters):
            given = [one.arguments[at] if at < len(one.arguments) else None for one in first]
            numbers = [value for value in given if isinstance(value, int) and not isinstance(value, bool)]
            if len(numbers) == len(given):
                found.append(GuardQuantity(parameter.name, parameter.name, QuantityKind.SIZE, tuple(numbers)))
        for at, axis in enumerate(_AXES):
            text = f"gridDim.{axis}"
            found.append(GuardQuantity(text, text, QuantityKind.SIZE, tuple(one.grid[at] for one in first)))
        return distinct(found, change.cases)

    def write(self, change: VariantChange, predicate: Predicate, why: str) -> str:
        """Return the file with the variant behind a condition."""
        before, after = changed_kernel(change)
        return _written(_File.of(change.base.kernel), _File.of(change.variant.kernel), before, after, predicate, why)


@dataclass(frozen=True)
class _File:
    data: bytes
    declarations: tuple[Declaration, ...]
    directives: tuple[str, ...]

    @classmethod
    def of(cls, source: SourceFile) -> "_File":
        data = source.text.encode()
        seen = outline(data)
        outside = [s for s in seen.directives if not any(one.span.holds(s) for one in seen.declarations)]
        return cls(data, seen.declarations, tuple(data[s.start : s.end].decode().strip() for s in outside))

    def text(self, span: Span) -> str:
        return self.data[span.start : span.end].decode()

    def named(self) -> dict[str, Declaration]:
        """Return the declarations by name; of several of a name, as for overloads, the last."""
        return {name: one for one in self.declarations if (name := name_of(one))}

    def holding(self, kernel: Kernel) -> Declaration:
        found = [one for one in self.declarations if one.body and one.span.holds(kernel.name_span)]
        if not found:
            raise NotGuardedError(f"the text of `{kernel.name}` is not plain enough")
        return found[-1]

    def above(self, offset: int) -> int:
        """Return the offset of a line, or of the first of the `//` comments that stand directly above it."""
        start = self.data.rfind(b"\n", 0, offset) + 1
        while start and self.data[self.data.rfind(b"\n", 0, start - 1) + 1 : start].lstrip().startswith(b"//"):
            start = self.data.rfind(b"\n", 0, start - 1) + 1
        return start


def name_of(declaration: Declaration) -> str:
    """Return the name that a declaration makes; empty where that is not plain to see."""
    if declaration.declarator is not None:
        return declaration.head[declaration.declarator[0]].text.decode()
    words: list[str] = []
    for token in declaration.head:
        if token.text in (b"=", b";", b"[]", b"{}", b":"):
            break
        words.append(token.text.decode())
    return words[-1] if words and words[-1].isidentifier() else ""


def changed_kernel(change: VariantChange) -> tuple[Kernel, Kernel]:
    """Return the one kernel that differs, before and after.

    Raises:
        NotGuardedError: none or several differ, or the launch does.
    """
    if change.base.launch != change.variant.launch:
        raise NotGuardedError("the variant changes how the kernel is launched, which is decided before it runs")
    base, variant = change.base.kernel, change.variant.kernel
    old = {one.name: one for one in find_kernels(base.text, base.path)}
    new = {one.name: one for one in find_kernels(variant.text, variant.path)}
    if old.keys() != new.keys():
        raise NotGuardedError("the variant has other kernels")
    texts = _File.of(base), _File.of(variant)
    differ = [name for name in old if texts[0].text(old[name].span) != texts[1].text(new[name].span)]
    if not differ:
        launched = {base_name(one.kernel) for case in change.cases for one in case.launches}
        differ = [name for name in old if name in launched]
    if len(differ) != 1:
        raise NotGuardedError("the variant changes several kernels" if differ else "the variant changes no kernel")
    before, after = old[differ[0]], new[differ[0]]
    plain = [[(p.name, _QUALIFIERS.sub("", p.type)) for p in one.parameters] for one in (before, after)]
    if plain[0] != plain[1] or before.template_parameters != after.template_parameters:
        raise NotGuardedError(f"the variant changes the parameters of `{before.name}`")
    if before.macro or any("__grid_constant__" in p.type for p in (*before.parameters, *after.parameters)):
        raise NotGuardedError(f"the text of `{before.name}` is not plain enough")
    return before, after


def _written(old: _File, new: _File, before: Kernel, after: Kernel, predicate: Predicate, why: str) -> str:
    told = re.sub(r"\W", "_", suffix(predicate))
    place, made = old.holding(before), new.holding(after)
    assert place.body is not None and made.body is not None and made.declarator is not None  # noqa: PT018
    names = _names_of_copies(old, new, made, told)
    lines = [one for one in new.directives if one not in old.directives]
    for line in lines:
        define = _DEFINE.match(line)
        if not (_INCLUDE.match(line) or (define and not any(f" {define[1]}" in one for one in old.directives))):
            raise NotGuardedError(f"the variant changes the directive `{line}`")
    short = before.name.rpartition("::")[2]
    helper = f"{short}_{told}"
    if helper.encode() in old.data:
        raise NotGuardedError(f"the file has a `{helper}` already")
    taken = made.head[made.declarator[1]]
    template = new.text(Span(made.head[0].start, made.head[0].end)) if made.head[0].text == b"template" else ""
    parameters, body = new.text(Span(taken.start, taken.end)), new.text(made.body)
    copies = [new.text(one.span) for one in new.declarations if name_of(one) in names and one is not made]
    head = f"__device__ __forceinline__ void {helper}"
    copies.append("\n".join(filter(None, (template, f"{head}{parameters} {body}"))))
    placed = "".join(f"{line}\n" for line in lines) + "".join(f"{_renamed(one, names)}\n\n" for one in copies)
    unit = indent_unit(old.data.decode())
    joined = {"and": " && ", "or": " || "}[predicate.joined]
    condition = joined.join(term.render(term.quantity.text) for term in predicate.terms)
    call = f"{helper}{_arguments(before)}({', '.join(p.name for p in before.parameters)});"
    guard = [
        *comment(why, "//", unit),
        f"{unit}if ({condition}) {{",
        f"{unit * 2}{call}",
        f"{unit * 2}return;",
        f"{unit}}}",
    ]
    inside = place.body.start + 1
    edits = [
        Edit(Span(at := old.above(place.span.start), at), placed),
        Edit(Span(inside, inside), "\n" + "\n".join(guard)),
    ]
    return apply_edits(old.data.decode(), edits)


def _names_of_copies(old: _File, new: _File, kernel: Declaration, told: str) -> dict[str, str]:
    """Return, by their names in the variant, the declarations beside the kernel that differ, with new names."""
    known = {old.text(one.span) for one in old.declarations}
    named, before = new.named(), old.named()
    repeated = len(named) < sum(bool(name_of(one)) for one in new.declarations)
    differ = {n for n, one in named.items() if one is not kernel and new.text(one.span) not in known}
    words = {n: set(re.findall(r"\w+", code_only(new.text(one.span).encode()).decode())) for n, one in named.items()}
    used, waiting = set[str](), [n for n, one in named.items() if one is kernel]
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting += [other for other in words[name] if other in named]
    while more := {n for n, one in named.items() if n not in differ and one is not kernel and differ & words[n]}:
        differ |= more
    differ &= used
    if differ and repeated:
        raise NotGuardedError("functions of the file share a name")
    if any(named[name].scope != kernel.scope for name in differ):
        raise NotGuardedError("the variant changes what stands in another namespace than the kernel")
    return {name: f"{name}_{told}" if name in before else name for name in differ}


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with the new names in it, outside comments and strings; members keep theirs."""
    if not names:
        return text
    data = text.encode()
    pattern = re.compile(rb"(?<![\w.])(?<!->)(?<!::)(?:" + b"|".join(re.escape(n.encode()) for n in names) + rb")\b")
    edits = [
        Edit(Span(found.start(), found.end()), names[found[0].decode()]) for found in pattern.finditer(code_only(data))
    ]
    return apply_edits(text, edits)


def _arguments(kernel: Kernel) -> str:
    """Return the template arguments with which the kernel calls what has its own template parameters."""
    if not kernel.template_parameters:
        return ""
    return f"<{', '.join(map(_argument_of, kernel.template_parameters))}>"


def _argument_of(parameter: str) -> str:
    words = re.findall(r"\w+", parameter.partition("=")[0])
    if not words or "..." in parameter:
        raise NotGuardedError(f"the template parameter `{parameter}` is not plain enough")
    return words[-1]
