"""Rooms: folders of modules that import each other in one direction, and each of which says what is in it."""

import ast
import re
from pathlib import Path

import kernel_lsp


def rooms_used(folder: Path, room: str) -> set[str]:
    """Return the folders and modules of a package at `folder` that those in its folder `room` import from."""
    package = ".".join(folder.relative_to(Path(kernel_lsp.__file__).parents[1]).parts)
    found: set[str] = set()
    for path in (folder / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ImportFrom(module=str(module), names=names) if module == package:
                    found |= {one.name for one in names if (folder / one.name).is_dir()}
                case ast.ImportFrom(module=str(module)) if module.startswith(f"{package}."):
                    found.add(module.removeprefix(f"{package}.").partition(".")[0])
                case _:
                    pass
    return found


def unnamed_modules(room: Path) -> set[str]:
    """Return the modules in a folder that its docstring does not name between backticks."""
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    return {path.stem for path in room.glob("*.py")} - {"__init__", *re.findall(r"`(\w+)`", said)}
