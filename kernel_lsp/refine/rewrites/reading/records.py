"""Structs of a file: the types of their members, by which kernels reach matrices that they are given as one value."""

import re

from tree_sitter import Node

from kernel_lsp.source.trees import field, text_of, walk


def struct_members(root: Node) -> dict[str, dict[str, str]]:
    """Return the members of a file's structs, by each name of theirs: names and types, without arrays."""
    found: dict[str, dict[str, str]] = {}
    for node in walk(root):
        body = node.child_by_field_name("body") if node.type == "struct_specifier" else None
        if body is not None:
            members = {name: kind for one in body.named_children for name, kind in _declared(one)}
            found |= dict.fromkeys(_names(node), members)
    return found


def _declared(declaration: Node) -> list[tuple[str, str]]:
    """Return the names that a declaration in a struct declares, with their types."""
    if declaration.type != "field_declaration":
        return []
    constant = "const " if re.match(r"const\b|\w+ const\b", text_of(declaration)) else ""
    kind, found = constant + text_of(field(declaration, "type")), list[tuple[str, str]]()
    for one in declaration.children_by_field_name("declarator"):
        name = re.fullmatch(r"(\**)\s*(?:__restrict(?:__)?)?\s*(\w+)", text_of(one))
        if name is not None:
            found.append((name[2], kind + name[1]))
    return found


def _names(struct: Node) -> list[str]:
    """Return the names of a struct: its own, and those of a `typedef` around it."""
    outer, own = struct.parent, struct.child_by_field_name("name")
    named = [own] if own is not None else []
    if outer is not None and outer.type == "type_definition":
        named += [one for one in outer.children_by_field_name("declarator") if one.type == "type_identifier"]
    return [text_of(one) for one in named]
