"""Checks assignments to, and deletions from, objects in Python host code: the file's own, or those of others."""

import ast
from collections.abc import Iterator

from kernel_lsp.source.static_check import policy
from kernel_lsp.source.static_check.findings import Finding, Note, Violation, words
from kernel_lsp.source.static_check.methods import Methods
from kernel_lsp.source.static_check.names import Names

_HARMLESS = words(
    "__doc__ __module__ __name__ __qualname__ bias block_shape data grad kwargs num_stages num_warps pre_hook "
    "requires_grad training weight"
)
"""Attributes of tensors, layers, configurations and functions that no other code relies on."""
_OF_A_KERNEL = words(
    "ASTSource CompiledKernel _fn_name _src asm create_binder device_caches function kernel pre_run_hooks raw_src src "
    "supported_modules supported_python_builtins used_global_vals"
)
"""Attributes by which Triton finds a kernel's text, names and compiled code."""
_LONGEST = 60  # characters of an expression in a message


class AssignmentRules:
    """The rules for assignments and deletions.

    Changing an imported object is a violation. So is changing an unknown object if the file holds a class or an object
    of others; otherwise that is a note.
    """

    def __init__(self, names: Names, methods: Methods) -> None:
        self._nodes, self._names, self._methods = names.nodes, names, methods
        self._fresh, self._returned = self._bound_to_fresh(), self._bound_to_returned()

    def findings(self, *, foreign: bool) -> Iterator[Finding]:
        """Yield the finding of each assignment and deletion; `foreign`: the file holds objects of others."""
        for node in self._nodes:
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                yield from self._of_attribute(node, foreign=foreign)
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                yield from self._of_item(node)

    def _of_attribute(self, node: ast.Attribute, *, foreign: bool) -> Iterator[Finding]:
        name, of = node.attr, node.value
        if (path := self._names.path(node)) is not None:
            yield Violation(node.lineno, f"changes `{'.'.join(path)}`")
        elif name.startswith("__") and name.endswith("__") and name not in policy.DEFINED | _HARMLESS:
            yield Violation(node.lineno, f"defines `{name}`")
        elif policy.is_refused(name) or (name in _OF_A_KERNEL and not self._methods.is_own(of)):
            yield Violation(node.lineno, f"changes `{_written(node)}`")
        elif not (name in _HARMLESS or self._is_own(of)):
            refused = foreign or self._comes_from_import(of)
            yield (Violation if refused else Note)(node.lineno, f"changes `{_written(node)}`")

    def _of_item(self, node: ast.Subscript) -> Iterator[Finding]:
        path = self._names.path(node.value)
        if path == ("os", "environ"):
            if not (isinstance(node.slice, ast.Constant) and policy.sets_a_harmless_variable(node.slice.value)):
                yield Violation(node.lineno, "changes the environment of the whole process")
        elif path is not None:
            yield Violation(node.lineno, f"changes `{'.'.join(path)}`")

    def _is_own(self, node: ast.expr) -> bool:
        """Return True if an object is the file's own: of its classes, its functions, or newly made by torch."""
        if self._methods.is_own(node) or self._methods.is_own_instance(node) or self._methods.is_own_class(node):
            return True
        return isinstance(node, ast.Name) and (node.id in self._fresh or self._methods.is_own_function(node))

    def _comes_from_import(self, node: ast.expr) -> bool:
        """Return True if an object is an imported function's result, a part of one, or a class obtained by `type`."""
        while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
            node = node.func if isinstance(node, ast.Call) else node.value
        if self._names.path(node) is not None:
            return True
        return isinstance(node, ast.Name) and (node.id == "type" or node.id in self._returned)

    def _bound_to_returned(self) -> set[str]:
        """Return the names that are bound to results of torch's or Triton's functions, except new objects."""
        found: set[str] = set()
        for node in self._nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and not self._makes(node.value):
                path = self._names.path(node.value.func) or ("",)
                if path[0] in ("torch", "triton"):
                    found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        return found

    def _bound_to_fresh(self) -> set[str]:
        """Return the names that are bound to new objects of torch and to nothing else."""
        fresh: set[str] = set()
        own: set[int] = set()
        for node in self._nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and self._makes(node.value):
                targets = [target for target in node.targets if isinstance(target, ast.Name)]
                fresh |= {target.id for target in targets}
                own |= {id(target) for target in targets}
        fresh -= {name for node, name, _ in self._names.bindings if id(node) not in own}
        return fresh - {node.arg for node in self._nodes if isinstance(node, ast.arg)}

    def _makes(self, call: ast.Call) -> bool:
        path = self._names.path(call.func) or ()
        of_torch = path[:1] == ("torch",) and (len(path) == 2 or path[1:2] == ("nn",))
        return of_torch or path in (("triton", "Config"), ("types", "SimpleNamespace"), ("copy", "deepcopy"))


def _written(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}.."
