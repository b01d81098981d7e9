"""Checks Python host code: imports, attributes, bindings and changes in its syntax tree."""

import ast
import io
import tokenize

from kernel_lsp.source.python import NestedTooDeepError, python_ast
from kernel_lsp.source.static_check import policy
from kernel_lsp.source.static_check.annotations import annotation_violations
from kernel_lsp.source.static_check.changes import AssignmentRules
from kernel_lsp.source.static_check.findings import Finding, Violation
from kernel_lsp.source.static_check.makers import maker_violations
from kernel_lsp.source.static_check.methods import Methods
from kernel_lsp.source.static_check.names import MOST_MEANINGS, Names
from kernel_lsp.source.static_check.reading import Reading
from kernel_lsp.source.static_check.shared import SharedNames
from kernel_lsp.source.static_check.telling import telling_violations
from kernel_lsp.source.static_check.triton_parts import triton_violations


def python_findings(
    text: str, *, builds: bool, beside_device_code: bool, shared: SharedNames = frozenset()
) -> tuple[Finding, ...]:
    """Return the violations and notes in Python host code, in order of its lines.

    The block below `if __name__ == "__main__":` at the top of the file is left out, since it never runs. Text that
    does not parse has no findings: executing it reports the error.

    Args:
        text: the file.
        builds: True if it may build extensions of torch.
        beside_device_code: True if its functions get objects of the harness, as the launch of a bare kernel does.
        shared: names that it may import from files that are not checked.
    """
    try:
        tree = python_ast(text)
    except NestedTooDeepError as error:
        return (Violation(error.lineno or 1, "it is nested too deep to be read"),)
    except SyntaxError:
        return ()
    if not _reads_as_written(text):
        return (Violation(1, "declares an encoding in which its text reads otherwise"),)
    _leave_out_main(tree)
    _leave_out_shared(tree, shared)
    found: set[Finding] = set()
    reading, readings = 0, 1
    while reading < readings:
        names = Names(tree, reading)
        found |= _of_a_reading(names, builds=builds, beside_device_code=beside_device_code)
        reading, readings = reading + 1, names.readings
    if readings == MOST_MEANINGS:
        found.add(Violation(1, "has a name for so many objects that it cannot be read"))
    return tuple(sorted(found, key=lambda finding: (finding.line, finding.what)))


def _of_a_reading(names: Names, *, builds: bool, beside_device_code: bool) -> set[Finding]:
    """Return the findings where each name has one of its meanings."""
    methods = Methods(names)
    foreign = beside_device_code or any(_is_foreign_in_hand(node, names) for node in names.nodes)
    return {
        *Reading(names, methods, builds=builds, beside_device_code=beside_device_code).findings(),
        *methods.violations(foreign=foreign),
        *annotation_violations(names, methods),
        *maker_violations(names, methods),
        *telling_violations(names),
        *triton_violations(names, methods),
        *AssignmentRules(names, methods).findings(foreign=foreign),
    }


def _reads_as_written(text: str) -> bool:
    """Return True if the interpreter, which obeys a `coding` comment, reads the same code as this check."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(lines).readline)
        return lines.decode(encoding) == lines.decode()
    except (SyntaxError, LookupError, UnicodeError):  # an encoding that is unknown, or not that of the text
        return False


def _leave_out_main(tree: ast.Module) -> None:
    for node in tree.body:
        match node:
            case ast.If(
                test=ast.Compare(
                    left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]
                )
            ):
                node.body = [ast.copy_location(ast.Pass(), node.body[0])]
            case _:
                pass


def _leave_out_shared(tree: ast.Module, shared: SharedNames) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            node.names = [alias for alias in node.names if (node.level, node.module, alias.name) not in shared]
            if not node.names:  # as if the import were not there
                node.level, node.module = 0, "__future__"


def _is_foreign_in_hand(node: ast.AST, names: Names) -> bool:
    """Return True if a class or object of torch or Triton is passed on, so that its changes cannot be traced."""
    match node:
        case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
            path = names.path(node)
            if path is None:
                return isinstance(node, ast.Attribute) and node.attr == "obj"  # the object of an AttributeError
            return path == ("dataclasses", "fields") or (policy.leads_to_a_class(path) and not names.is_plain(node))
        case ast.Call(func=ast.Name(id="type")):
            return not names.is_plain(node)
        case _:
            return False
