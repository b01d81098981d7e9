"""Advice for a file that raises while it is imported. Runner processes only."""

import ast
from pathlib import Path

from kernel_lsp.source.python import names_read, python_ast_if_any
from kernel_lsp.workload.imports import broken_packages

_MAIN = 'under `if __name__ == "__main__":`'
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def import_fix(error: BaseException, text: str, path: Path, line: int | None) -> str | None:
    """Return advice as sentences; None if there is none beyond the error's own message.

    Args:
        error: what was raised.
        text: the file's.
        path: the file.
        line: the line at the top of the file that was being executed, as far as it is known.
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        where = f"; or move its import {_MAIN} if only tests or benchmarks need it" if line else ""
        return _with_packages(
            f"Install `{top}` where kernel-lsp is installed, or put it into the project{where}.", path
        )
    if isinstance(error, ImportError):
        return _with_packages("", path) or None
    if isinstance(error, SystemExit) and line is not None:
        return f"It ends here without the arguments of a command line: give them defaults, or put this {_MAIN}."
    tree = python_ast_if_any(text)
    if tree is None or line is None:
        return None
    statement = next((node for node in tree.body if node.lineno <= line <= (node.end_lineno or node.lineno)), None)
    if statement is None or not _is_for_its_effect(statement, tree):
        return None
    return f"Line {statement.lineno} runs when the file is imported: if it tests or measures, put it {_MAIN}."


def _with_packages(fix: str, path: Path) -> str:
    """Return a fix, preceded by the errors of the file's packages: names from their `__init__.py` are missing."""
    broken = [
        f"{init} raised {type(error).__name__}" + (f" ({words[0]})" if (words := str(error).splitlines()) else "")
        for init, error in broken_packages(path)
    ]
    return " ".join(filter(None, (f"{'; '.join(broken)}." if broken else "", fix)))


def _is_for_its_effect(statement: ast.stmt, tree: ast.Module) -> bool:
    """Return True if a top-level statement binds no names that the file's definitions use."""
    if isinstance(statement, _DEFINITIONS):
        return False
    made = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return made.isdisjoint(names_read(*(node for node in tree.body if isinstance(node, _DEFINITIONS))))
