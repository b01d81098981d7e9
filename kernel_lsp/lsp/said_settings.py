"""Reads the settings that a client sends, in any of the forms that clients use."""

from collections.abc import Mapping
from typing import Any, cast

SECTION = "kernel-lsp"


def said_settings(value: Any) -> dict[str, Any]:
    """Return the client's settings, with dotted names, without nulls; the tree may lie under its own name."""
    if not isinstance(value, Mapping):
        return {}
    tree = cast("Mapping[str, Any]", value)
    inner = tree.get(SECTION)
    return dict(_leaves(cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else tree))


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found += _leaves(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        elif value is not None:
            found.append((f"{prefix}{name}", value))
    return found
