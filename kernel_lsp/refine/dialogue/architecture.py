"""Show a workload in KernelBench's format, for models that were trained on a `Model` and nothing else.

Also splits a file that holds both problem and answer, and replaces its answer.
"""

import ast
import textwrap
from collections.abc import Collection, Iterator

from kernel_lsp.errors import WorkloadError
from kernel_lsp.refine.dialogue.answer import RejectedAnswer
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.modules import PROBLEM, is_problem
from kernel_lsp.source.python import python_ast

# Names in a workload that only the judge needs, or that belong to the author's own answer.
_NOT_SHOWN = frozenset(
    ("CASES", "CONTRACT", "KERNEL", "NONDETERMINISTIC", "TOLERANCE", "launch", "reference", "inputs")
)
_IMPORTED = ("import torch", "import torch.nn as nn", "import triton", "import triton.language as tl")


def as_architecture(workload: SourceFile) -> str:
    """Return the workload's reference as `Model`, with inputs of a case that is not the smallest.

    A KernelBench problem is returned as it is; from a file that also holds an answer, only the problem's part.

    Raises:
        WorkloadError: it is no workload.
    """
    try:
        tree = python_ast(workload.text)
    except SyntaxError as error:
        raise WorkloadError(f"the workload cannot be parsed: {error}", workload.path) from None
    if is_problem(workload.text):
        whole = workload.text if "ModelNew" not in set(_names(workload.text)) else _problem(tree, workload.text)
        return whole.rstrip() + "\n"
    made = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "reference" not in made or "inputs" not in made:
        raise WorkloadError("the workload does not define `reference` and `inputs`", workload.path)
    reference = made["reference"]
    shared = "\n".join(_shared(tree, workload.text, reference, made["inputs"]))
    parts = [
        "\n".join(_IMPORTED[:2]),
        shared,
        _model(workload.text, reference),
        _source(workload.text, made["inputs"]),
        _get_inputs(_case(tree)),
        "def get_init_inputs():\n    return []",
    ]
    return "\n\n\n".join(filter(None, parts)) + "\n"


def answer_part(text: str) -> str:
    """Return a file without its problem, if it holds one."""
    return _cut_out(ast.parse(text), text, PROBLEM)


def in_place_of_answer(file: SourceFile, code: str) -> str:
    """Return the text of a file that holds problem and answer, with another answer.

    Args:
        file: as it stands.
        code: the answer, which may repeat the problem.

    Raises:
        RejectedAnswer: the answer gives another meaning to a name that the problem uses.
    """
    problem, answer = as_architecture(file), answer_part(code)
    theirs = {name: node for node in ast.parse(problem).body for name in _defined(node)}
    repeated: set[str] = set()
    for node in ast.parse(answer).body:
        for name in set(_defined(node)) & theirs.keys():
            if isinstance(node, ast.Import | ast.ImportFrom):
                continue
            if ast.dump(node) != ast.dump(theirs[name]):
                raise RejectedAnswer(f"`{name}` is a name of the given file. Use another one.")
            repeated.add(name)
    return f"{problem}\n\n{_cut_out(ast.parse(answer), answer, repeated).strip()}\n"


def _model(text: str, reference: ast.FunctionDef) -> str:
    arguments = ast.unparse(reference.args)
    body = reference.body[1:] if ast.get_docstring(reference) is not None else reference.body
    lines = text.splitlines()[body[0].lineno - 1 : reference.end_lineno]
    forward = textwrap.indent(textwrap.dedent("\n".join(lines)), " " * 8)
    head = "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n\n"
    return f"{head}    def forward(self{', ' if arguments else ''}{arguments}):\n{forward}"


def _get_inputs(case: str) -> str:
    listed = "list(made) if isinstance(made, tuple) else [made]"
    return f"def get_inputs():\n    made = inputs({case})\n    return {listed}"


def _case(tree: ast.Module) -> str:
    """Return the arguments of a representative case: the one with the largest product of its numbers."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "CASES" for t in node.targets):
            cases = [entry for entry in getattr(node.value, "elts", []) if isinstance(entry, ast.Call | ast.Dict)]
            shown = max(cases, key=_extent, default=None)
            if isinstance(shown, ast.Call):
                return ", ".join(f"{k.arg}={ast.unparse(k.value)}" for k in shown.keywords)
            if isinstance(shown, ast.Dict):
                return f"**{ast.unparse(shown)}"
    return ""


def _extent(case: ast.expr) -> int:
    product = 1
    for node in ast.walk(case):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0:
            product *= node.value
    return product


def _shared(tree: ast.Module, text: str, *users: ast.FunctionDef) -> Iterator[str]:
    """Yield all else that the functions need from the top of the file, in its order."""
    wanted = {n.id for user in users for n in ast.walk(user) if isinstance(n, ast.Name)}
    kept: list[ast.stmt] = []
    for node in reversed(tree.body):  # what is needed may itself need what stands above it
        names = set(_defined(node))
        if isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node) in _IMPORTED:
            continue
        if names & wanted and not names & _NOT_SHOWN:
            kept.append(node)
            wanted |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    yield from (_source(text, node) for node in reversed(kept))


def _defined(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in names)
        case _:
            return


def _names(text: str) -> Iterator[str]:
    try:
        tree = python_ast(text)
    except SyntaxError:
        return
    for node in tree.body:
        yield from _defined(node)


def _problem(tree: ast.Module, text: str) -> str:
    """Return what `Model`, `get_inputs` and `get_init_inputs` need from a file, in its order."""
    wanted = set(PROBLEM)
    kept: list[ast.stmt] = []
    for node in reversed(tree.body):
        if set(_defined(node)) & wanted:
            kept.append(node)
            wanted |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return "\n\n".join(_source(text, node) for node in reversed(kept))


def _cut_out(tree: ast.Module, text: str, names: Collection[str]) -> str:
    """Return the text without the definitions of these names."""
    gone = [_lines(node) for node in tree.body if set(_defined(node)) & set(names)]
    lines = text.splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines, 1) if all(number not in extent for extent in gone))


def _source(text: str, node: ast.stmt) -> str:
    extent = _lines(node)
    return "\n".join(text.splitlines()[extent.start - 1 : extent.stop - 1])


def _lines(node: ast.stmt) -> range:
    """Return the lines of a statement with its decorators, counted from 1."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return range(first, (node.end_lineno or node.lineno) + 1)
