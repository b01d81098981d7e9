"""Determines the names that a candidate may import from files that the baseline or the workload imports.

The candidate did not write such a file, and it runs in the baseline's process too, so its functions and constants may
be shared, as those of one workload by many versions. Objects that the file itself imported may not be taken from it.
Functions that compute the right answer may be imported, as by a workload made from another one, but not used.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.imports import files_of, folders_of, local_imports
from kernel_lsp.source.python import is_python, names_read, python_ast_if_any

SharedNames = frozenset[tuple[int, str, str]]
"""Importable names: levels up, module, name."""


def shared_names(file: SourceFile, baseline: Candidate, workload: SourceFile) -> SharedNames:
    """Return the names that a candidate's `file` may import from files that the baseline or the workload imports."""
    own = [one for one in (baseline.kernel, baseline.launch, workload) if one is not None and is_python(one.path)]
    folders = folders_of(*own)
    read = {one.path.resolve(): one for each in own for one in local_imports(each, folders, None) or ()}
    read |= {one.path.resolve(): one for one in own}
    read.pop(baseline.kernel.path.resolve(), None)  # the candidate replaces it
    answers = _answers(workload, [tree for one in read.values() if (tree := python_ast_if_any(one.text))])
    return frozenset(_allowed(file, folders_of(*own, file), read, answers))


def _allowed(
    file: SourceFile, folders: Sequence[Path], read: Mapping[Path, SourceFile], answers: set[str]
) -> Iterator[tuple[int, str, str]]:
    tree = python_ast_if_any(file.text)
    if tree is None:
        return
    used = names_read(tree)
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
        if node.module is None or (not node.level and node.module.partition(".")[0] in sys.stdlib_module_names):
            continue
        starts = [file.path.parent.joinpath(*[".."] * (node.level - 1))] if node.level else folders
        found = [files for start in starts if (files := files_of(start, node.module))]
        if not found or any(path.resolve() not in read for files in found for path in files):
            continue
        defined = frozenset[str].intersection(*(_defined(read[files[-1].resolve()].text) for files in found))
        for alias in node.names:
            if alias.name in defined and not (alias.name in answers and (alias.asname or alias.name) in used):
                yield node.level, node.module, alias.name


@lru_cache(maxsize=256)  # the same files lie beside every candidate
def _defined(text: str) -> frozenset[str]:
    """Return the functions, classes and constants at the top of a file, except those made of imported objects."""
    tree = python_ast_if_any(text)
    if tree is None:
        return frozenset()
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if imported.isdisjoint(names_read(node.value)):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(found - imported)


def _answers(workload: SourceFile, trees: Sequence[ast.Module]) -> set[str]:
    """Return the names that give the right answer: `reference`, and functions that use it."""
    found = {"reference"}
    tree = python_ast_if_any(workload.text)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names if alias.asname == "reference"}
        elif isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "reference" for t in node.targets
        ):
            found |= set(names_read(node.value))
    definitions = (node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef))
    functions = {node.name: names_read(node) for node in definitions}
    while more := {name for name, used in functions.items() if name not in found and not found.isdisjoint(used)}:
        found |= more
    return found
