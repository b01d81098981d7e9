"""Python host code: its syntax tree shows imports, attributes, bindings and changes."""

import ast

from kernel_lsp.source.python import NestedTooDeepError, python_ast
from kernel_lsp.source.screening import policy
from kernel_lsp.source.screening.annotations import annotation_objections
from kernel_lsp.source.screening.changes import Changes
from kernel_lsp.source.screening.findings import Finding, Objection
from kernel_lsp.source.screening.methods import Methods
from kernel_lsp.source.screening.names import Names
from kernel_lsp.source.screening.reading import Reading
from kernel_lsp.source.screening.shared import SharedNames


def python_findings(
    text: str, *, builds: bool, beside_device_code: bool, shared: SharedNames = frozenset()
) -> tuple[Finding, ...]:
    """Return what Python host code does beyond making tensors and launching kernels, in order of its lines.

    The block below `if __name__ == "__main__":` at the top of the file is left out, for nobody runs it. A text that
    does not parse has none: whoever executes it says what is wrong.

    Args:
        text: the file.
        builds: whether it may build extensions of torch.
        beside_device_code: whether its functions are given objects of the harness, as the launch of a bare kernel is.
        shared: names that it may import from files that are not judged.
    """
    try:
        tree = python_ast(text)
    except NestedTooDeepError as error:
        return (Objection(error.lineno or 1, "it is nested too deep to be read"),)
    except SyntaxError:
        return ()
    _leave_out_main(tree)
    _leave_out_shared(tree, shared)
    names = Names(tree)
    methods = Methods(names)
    foreign = beside_device_code or any(_is_foreign_in_hand(node, names) for node in names.nodes)
    reading = Reading(names, methods, builds=builds, beside_device_code=beside_device_code)
    found = {
        *reading.findings(),
        *methods.objections(foreign=foreign),
        *annotation_objections(names, methods),
        *Changes(names, methods).findings(foreign=foreign),
    }
    return tuple(sorted(found, key=lambda finding: (finding.line, finding.what)))


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
            if not node.names:  # as if nothing stood there
                node.level, node.module = 0, "__future__"


def _is_foreign_in_hand(node: ast.AST, names: Names) -> bool:
    """Return whether a class or object of torch or Triton is handed round, so that nobody sees who changes it."""
    match node:
        case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
            path = names.path(node)
            if path is None:
                return isinstance(node, ast.Attribute) and node.attr == "obj"  # of an AttributeError
            return path == ("dataclasses", "fields") or (policy.leads_to_a_class(path) and not names.is_plain(node))
        case ast.Call(func=ast.Name(id="type")):
            return not names.is_plain(node)
        case _:
            return False
