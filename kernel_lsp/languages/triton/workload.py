"""Drafts calls of Triton kernels: through the file's function that launches them, else from their parameters."""

import ast
from dataclasses import replace

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.python import python_ast_if_any
from kernel_lsp.source.triton_extents import Extents, extents_of
from kernel_lsp.source.triton_host import Host, Taken, host_of, uses_of
from kernel_lsp.source.triton_reference import reference_in
from kernel_lsp.source.triton_types import types_of
from kernel_lsp.source.triton_uses import Uses, element_of
from kernel_lsp.workload.language import Argument, Drafted, DraftedCall, WorkloadPart, is_small, value_of

_POWER = 16  # lengths of blocks: a small one, of which all larger powers of two are multiples


class _Triton:
    def draft(self, source: SourceFile, kernel: Kernel) -> Drafted:
        tree = python_ast_if_any(source.text)
        host = host_of(tree, kernel.name) if tree else None
        if tree is None or host is None:
            uses = uses_of(tree, kernel.name) if tree else Uses()
            arguments = [_of_kernel(parameter.name, parameter.constexpr, uses) for parameter in kernel.parameters]
            return Drafted(arguments, lambda plan: _unlaunched(kernel, plan))
        return _through(host, tree, source)


def _through(host: Host, tree: ast.Module, source: SourceFile) -> Drafted:
    """Return the draft of a call of the function that launches the kernel."""
    extents, types = extents_of(host), types_of(host)
    arguments = [a for taken in host.parameters if (a := _argument(taken, host, extents)) is not None]
    arguments = [replace(a, dtype=types.get(a.name, a.dtype)) for a in arguments]
    call = f"module.{host.call}({', '.join(_given(host, arguments, extents))})"
    lines, returned = _returned(host, call)
    multiples = extents.multiples | dict.fromkeys(extents.powers, _POWER)
    given = [a.name for a in arguments if a.role not in ("output", "extent")]
    right = reference_in(tree, source.text, host, given)
    return Drafted(
        arguments,
        lambda _: lines,
        shaped=True,
        returned=returned,
        multiples=multiples,
        known=extents.known,
        reference=right.expression if right else "",
        functions=right.functions if right else "",
    )


def _argument(taken: Taken, host: Host, extents: Extents) -> Argument | None:
    """Return the drafted argument for a parameter of the host; None if its default is used or it is never read."""
    name = taken.name
    if taken.default is not None:
        value = taken.default.value if isinstance(taken.default, ast.Constant) else None
        return Argument(name, "number", value=repr(value)) if isinstance(value, float) and is_small(name) else None
    if name not in host.read:
        return None
    if name in extents.numbers:
        return Argument(extents.numbers[name], "extent")
    if name in host.tensors:
        return _tensor(name, host, extents)
    kinds = {k for k, value in host.handed.items() if isinstance(value, ast.Name) and value.id == name}
    if (
        is_small(name)
        or "float" in taken.annotation
        or (not taken.annotation and kinds & (host.uses.real - host.uses.whole))
    ):
        return Argument(name, "number", value=value_of(name))
    kind = f", {taken.annotation}" if taken.annotation else ""
    return Argument(name, "open", value=f"Say what `{name}`{kind} is.")


def _tensor(name: str, host: Host, extents: Extents) -> Argument:
    shape = extents.shapes.get(name)
    if shape is None:
        return Argument(name, "open", value=f"Say what `{name}` is: the file does not tell its shape.")
    pointers = [k for k, value in host.handed.items() if name in host.roots(value)]
    mutated = name in host.written
    if mutated and name not in host.loaded:
        return Argument(name, "output", shape=shape)
    if any(element_of(one, host.uses) for one in (name, *pointers)):
        asked = f"Say what `{name}` holds, a tensor of the shape ({', '.join(shape)}): whole numbers below what?"
        return Argument(name, "open", value=asked, shape=shape)
    return Argument(name, "input", shape=shape, mutated=mutated)


def _given(host: Host, arguments: list[Argument], extents: Extents) -> list[str]:
    """Return the arguments of a call of the host; those after one that is left out are given by name where possible."""
    named = {a.name for a in arguments}
    found: list[str] = []
    left_out = False
    last = max((at for at, taken in enumerate(host.parameters) if _is_given(taken, named, extents)), default=-1)
    for taken in host.parameters[: last + 1]:
        value = extents.numbers.get(taken.name, taken.name)
        if value in named:
            found.append(f"{taken.name}={value}" if left_out and not host.by_position else value)
        elif taken.default is None:
            found.append("None")  # it is never looked at
        elif host.by_position:
            found.append(ast.unparse(taken.default))
        else:
            left_out = True
    return found


def _is_given(taken: Taken, named: set[str], extents: Extents) -> bool:
    return taken.default is None or extents.numbers.get(taken.name, taken.name) in named


def _returned(host: Host, call: str) -> tuple[list[str], str]:
    """Return the lines that call the host, and the expression of its output: of several the first that it writes."""
    if host.returns is None:
        return [call], ""
    if len(host.returns) == 1:
        return [], call
    written = [at for at, name in enumerate(host.returns) if name]
    if not written:
        return ['raise NotImplementedError("Say which of what is returned are outputs.")'], call
    others = ", ".join(host.returns[at] for at in written[1:])
    return ([f"# Not compared: {others}"] if others else []), f"{call}[{written[0]}]"


def _of_kernel(name: str, constexpr: bool, uses: Uses) -> Argument:
    if constexpr:
        return Argument(name, "constant")
    if name in uses.pointers:
        stored, loaded = name in uses.stored, name in uses.loaded
        return Argument(name, "output" if stored and not loaded else "input", mutated=stored and loaded)
    if name in uses.real - uses.whole:
        return Argument(name, "number", value=value_of(name))
    bounds = {bound for found in uses.bounds.values() for bound in found}
    return Argument(name, "extent") if name in bounds else Argument(name, "open", value=f"Say what `{name}` is.")


def _unlaunched(kernel: Kernel, plan: DraftedCall) -> list[str]:
    """Return the form of a launch of a kernel that nothing in the file launches."""
    constants = ", ".join(f"`{a.name}`" for a in plan.of("constant"))
    asked = f"Nothing in the file launches {kernel.name}: say the grid{f', {constants}' if constants else ''}."
    constant = next((at for at, a in enumerate(plan.arguments) if a.role == "constant"), len(plan.arguments))
    given = [a.name for a in plan.arguments[:constant]]
    given += [f"{a.name}={'...' if a.role == 'constant' else a.name}" for a in plan.arguments[constant:]]
    return [f"raise NotImplementedError({asked!r})", f"module.{kernel.name}[...]({', '.join(given)})"]


PART: WorkloadPart = _Triton()
