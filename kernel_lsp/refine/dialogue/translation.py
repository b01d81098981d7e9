"""Translate a `ModelNew` back into the user's files: its kernels into the kernel file, its host code into `launch`."""

import ast
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.refine.dialogue.answer import RejectedAnswer
from kernel_lsp.refine.dialogue.host_code import host_function
from kernel_lsp.refine.dialogue.kernelbench import find_class, find_method, is_kernel
from kernel_lsp.source.cuda import find_cuda_kernels, find_host_functions
from kernel_lsp.source.modules import inline_sources
from kernel_lsp.source.outline import Declaration, outline
from kernel_lsp.source.python import definitions
from kernel_lsp.source.slicing import slice_device
from kernel_lsp.source.text import Edit, Span, apply_edits

_DEFINE = re.compile(rb"[ \t]*#[ \t]*define[ \t]+(\w+)")
_PROBLEM = frozenset(("Model", "ModelNew", "get_inputs", "get_init_inputs"))


@dataclass(frozen=True, slots=True)
class CandidateTexts:
    """The two texts of a candidate; `launch` is None where the kernel file needs none of its own."""

    kernel: str
    launch: str | None


def into_cuda(tree: ast.Module, code: str, files: CandidateTexts, path: Path) -> CandidateTexts:
    """Return the files of an answer that builds its kernels with `load_inline`.

    The answer's device code replaces every kernel that the user's `launch` names; `forward` becomes `launch`, with the
    host functions that it calls translated to Python.

    Args:
        tree: the answer, as `check_model_new` returns it.
        code: its text.
        files: the user's texts; `launch` is the workload file.
        path: of the kernel file.

    Raises:
        RejectedAnswer: something in it cannot be taken over.
    """
    if files.launch is None:
        raise RejectedAnswer("This kernel has no workload file whose `launch` could be replaced.")
    parts = [part for part in inline_sources(code) if part.kind == "cuda"]
    if not parts:
        raise RejectedAnswer("`cuda_sources` must be a plain string constant, so that its kernels can be read.")
    if any(part.call != parts[0].call for part in parts):
        raise RejectedAnswer("Build everything with one call of `load_inline`.")
    source = "\n".join(part.text for part in parts)
    hosts = [name.rpartition("::")[2] for name in find_host_functions(source)]
    body = _forward(tree, frozenset(hosts))
    called = [name for name in hosts if re.search(rf"\b{re.escape(name)}\(", body.text)]
    if not called:
        raise RejectedAnswer("`forward` calls no function of the CUDA source.")
    helpers = "\n\n".join(host_function(source, name) for name in called)
    return CandidateTexts(
        _merged(files.kernel, _device_code(source), path, files.launch),
        _with_launch(files.launch, f"{helpers}\n\n{body.text}", body.parameters),
    )


def into_triton(tree: ast.Module, code: str, files: CandidateTexts, wrapper: str) -> CandidateTexts:
    """Return the files of an answer whose kernels are Triton's.

    Each top-level definition of the answer, except the problem itself, replaces the one of the same name in the user's
    file or is put before the wrapper; the wrapper gets the body of `forward`.

    Raises:
        RejectedAnswer: `forward` uses attributes of `self`, or takes other arguments than the wrapper.
    """
    body = _forward(tree, frozenset())
    there = definitions(files.kernel)
    old = next(n for n in ast.parse(files.kernel).body if isinstance(n, ast.FunctionDef) and n.name == wrapper)
    if len(body.parameters) != len(old.args.args):
        raise RejectedAnswer(f"`forward` must take {len(old.args.args)} tensors, as `{wrapper}` does.")
    renamed = [
        f"{new} = {name.arg}" for new, name in zip(body.parameters, old.args.args, strict=True) if new != name.arg
    ]
    head = f"def {wrapper}({ast.unparse(old.args)}):"
    new_wrapper = "\n".join([head, *textwrap.indent("\n".join([*renamed, body.text]), "    ").splitlines()])
    edits = [Edit(there[wrapper], new_wrapper)]
    fresh: list[str] = []
    lines = code.splitlines()
    known = set(files.kernel.splitlines())
    for node in tree.body:
        name = getattr(node, "name", None)
        if name in _PROBLEM or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        text = "\n".join(lines[first - 1 : node.end_lineno])
        if isinstance(node, ast.Import | ast.ImportFrom):
            if text not in known and ast.unparse(node) not in ("import torch.nn as nn", "from torch import nn"):
                fresh.append(text)
        elif name in there and name != wrapper:
            edits.append(Edit(there[name], text))
        elif name != wrapper:
            fresh.append(text)
    at = min((there[n].start for n in there if n == wrapper or n in _kernel_names(files.kernel)), default=0)
    edits.append(Edit(Span(at, at), "".join(f"{text}\n\n\n" for text in fresh)))
    if any(a.span == b.span for i, a in enumerate(edits) for b in edits[:i] if a.span.start != a.span.end):
        raise RejectedAnswer("The answer defines one function twice.")
    return CandidateTexts(_joined(files.kernel, edits), files.launch)


@dataclass(frozen=True, slots=True)
class _Body:
    parameters: tuple[str, ...]
    text: str


def _forward(tree: ast.Module, hosts: frozenset[str]) -> _Body:
    """Return body and parameters of `ModelNew.forward`, with calls of the built module's functions as plain calls."""
    new = find_class(tree, "ModelNew")
    forward = find_method(new, "forward") if new else None
    if forward is None:
        raise RejectedAnswer("`ModelNew` defines no `forward`.")
    parameters = tuple(a.arg for a in forward.args.args[1:])
    if forward.args.vararg or forward.args.kwarg or forward.args.kwonlyargs:
        raise RejectedAnswer("`forward` must take the inputs of `Model.forward`, by the same names.")
    statements = [s for s in forward.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    try:
        body = ast.fix_missing_locations(_Plain(hosts).visit(ast.Module(statements, [])))
        text = ast.unparse(body)
    except RecursionError:
        raise RejectedAnswer("Expressions in `forward` are nested too deep.") from None
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and node.id == "self":
            raise RejectedAnswer(
                "`forward` uses attributes of `self`. This kernel has no parameters of its own: compute all it needs "
                "from the arguments of `forward`, or write numbers out."
            )
    return _Body(parameters, text)


class _Plain(ast.NodeTransformer):
    """Rewrites `self.op.f(x)` and `op.f(x)` to `f(x)` for the functions of the built module."""

    def __init__(self, hosts: frozenset[str]) -> None:
        self._hosts = hosts

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if node.attr in self._hosts:
            return ast.copy_location(ast.Name(node.attr, ast.Load()), node)
        self.generic_visit(node)
        return node


def _device_code(source: str) -> str:
    """Return the device part of a CUDA source, without blank stretches."""
    lines = [line.rstrip() for line in slice_device(source).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _merged(text: str, device: str, path: Path, launch: str) -> str:
    """Return the kernel file with its launched kernels replaced by the answer's device code, without duplicates."""
    data = text.encode()
    replaced = [k for k in find_cuda_kernels(text, path) if re.search(rf"\b{re.escape(k.name)}\b", launch)]
    if not replaced:
        raise RejectedAnswer("None of the file's kernels is launched by the workload.")
    taken = _defined_names(device.encode())
    edits = [Edit(_with_line_end(data, made.span), "") for made in _clashing(data, taken)]
    scopes = {made.span.end: made.scope for made in outline(data).declarations}
    gone = [_with_comment_above(data, k.span) for k in replaced]
    edits = [e for e in edits if not any(e.span.start < span.end and span.start < e.span.end for span in gone)]
    if any(scopes.get(span.end) for span in gone):  # inside a namespace names would change
        edits += [Edit(_with_line_end(data, span), "") for span in gone]
        edits.append(Edit(Span(len(data), len(data)), f"\n{device}\n"))
    else:
        edits.append(Edit(gone[0], device))
        edits += [Edit(_with_line_end(data, span), "") for span in gone[1:]]
    return _joined(text, edits)


def _joined(text: str, edits: list[Edit]) -> str:
    try:
        return apply_edits(text, edits)
    except ValueError:
        raise RejectedAnswer("The answer's definitions overlap those of the file; use other names.") from None


def _clashing(data: bytes, names: set[bytes]) -> list[Declaration]:
    return [made for made in outline(data).declarations if _names_of(made) & names]


def _defined_names(data: bytes) -> set[bytes]:
    read = outline(data)
    names = {name for made in read.declarations for name in _names_of(made)}
    return names | {m[1] for d in read.directives if (m := _DEFINE.match(data[d.start : d.end]))}


def _names_of(made: Declaration) -> set[bytes]:
    """Return the name that a declaration gives to a function, a variable or a type."""
    if made.declarator is not None:
        return {made.head[made.declarator[0]].text}
    words = [t.text for t in made.head]
    for mark in (b"=", b"[]", b"{}", b";"):
        if mark in words and words.index(mark):
            return {words[words.index(mark) - 1]}
    return set()


def _with_comment_above(data: bytes, span: Span) -> Span:
    """Return a kernel's span with the `//` lines right above, which describe it; never those that begin the file."""
    start = span.start
    while start and (line := data.rfind(b"\n", 0, start - 1) + 1) and data[line:start].lstrip().startswith(b"//"):
        start = line
    return Span(start, span.end)


def _with_line_end(data: bytes, span: Span) -> Span:
    """Return a span with the line break after it, so that its removal leaves no empty line."""
    return Span(span.start, span.end + 1 if data[span.end : span.end + 1] == b"\n" else span.end)


def _with_launch(text: str, body: str, parameters: tuple[str, ...]) -> str:
    """Return a workload file with another `launch`."""
    there = definitions(text)
    if "launch" not in there:
        raise RejectedAnswer("The workload has no `launch` to replace.")
    imports = [f"import {name}" for name in ("math", "torch") if f"{name}." in body and f"import {name}" not in text]
    lines = "\n".join([*imports, body])
    made = f"def launch(module, {', '.join(parameters)}):\n{textwrap.indent(lines, '    ')}"
    return apply_edits(text, [Edit(there["launch"], made)])


def _kernel_names(text: str) -> set[str]:
    return {n.name for n in ast.parse(text).body if is_kernel(n) and isinstance(n, ast.FunctionDef)}
