"""Writes the records of `kernel_lsp.lsp.wire` into src/protocol.ts: `python extension/scripts/protocol.py`."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from pydantic import BaseModel

from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.lsp.catalog import COMMANDS, JOBS
from kernel_lsp.lsp.requests import REQUESTS
from kernel_lsp.lsp.wire import JobRecord, Work

TARGET = Path(__file__).parents[1] / "src/protocol.ts"

_COLUMNS = 120
_LATER = {"KernelResources": KernelResources}  # what `wire` imports for types alone
_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null", Any: "unknown"}
_ATTRIBUTES = "Attributes:\n"


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a record: its name on the wire, its type hint, and whether it may be left out."""

    name: str
    hint: Any
    optional: bool = False


def protocol() -> str:
    """The file as the records are declared now."""
    parts = [
        "// Written by scripts/protocol.py from the server's records: change those, and run it again.",
        "/** What the server says beyond the protocol; `docs/lsp-protocol.md` describes each message. */",
        _union("Command", [command.name for command in COMMANDS]),
        _union("Work", list(JOBS)),
        _requests(),
        *map(_declared, records()),
    ]
    return "\n\n".join(parts) + "\n"


def records() -> list[type[Any]]:
    """The records and enumerations that requests and notifications are made of."""
    named: dict[str, type[Any]] = {}
    for record in (JobRecord, *(record for request in REQUESTS for record in (request.params, request.result))):
        _collect(record, named)
    return list(named.values())


def members_of(record: type[Any]) -> list[Member]:
    """The members of a record, in order."""
    hints = get_type_hints(record, localns=_LATER, include_extras=True)
    if issubclass(record, msgspec.Struct):
        return [Member(one.encode_name, hints[one.name], not one.required) for one in msgspec.structs.fields(record)]
    names = record.model_fields if issubclass(record, BaseModel) else [one.name for one in fields(record)]
    return [Member(name, hints[name]) for name in names]


def _collect(hint: Any, named: dict[str, type[Any]]) -> None:
    """Note the records and enumerations that a type hint is made of, by their names."""
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, msgspec.Struct | BaseModel | StrEnum)):
        if named.setdefault(hint.__name__, hint) is not hint:
            raise ValueError(f"two records are called {hint.__name__}")
        for member in () if issubclass(hint, StrEnum) else members_of(hint):
            _collect(member.hint, named)
    for part in get_args(hint):
        _collect(part, named)


def _declared(record: type[Any]) -> str:
    if issubclass(record, StrEnum):
        return _union(record.__name__, [one.value for one in record])
    said, about = documented(record)
    if not members_of(record):
        return "\n".join([*_comment(said), f"export type {record.__name__} = Record<string, never>;"])
    comments: dict[str, str] = {}
    for names, text in about.items():
        first, *others = names.split(", ")
        comments[first] = f"{names}: {text}" if others else text[0].upper() + text[1:]
    lines = [*_comment(said), f"export interface {record.__name__} {{"]
    for member in members_of(record):
        lines += _comment(comments.get(member.name, ""), "  ")
        lines.append(f"  {member.name}{'?' if member.optional else ''}: {written(member.hint)};")
    return "\n".join([*lines, "}"])


def _requests() -> str:
    rows = [
        f"  {request.method.partition('/')[2]}: "
        f"{{ params: {request.params.__name__}; result: {request.result.__name__} }};"
        for request in REQUESTS
    ]
    return "\n".join(["/** By their methods, after `kernelLsp/`. */", "export interface Requests {", *rows, "}"])


def _union(name: str, values: list[str]) -> str:
    quoted = [f'"{value}"' for value in values]
    line = f"export type {name} = {' | '.join(quoted)};"
    return line if len(line) <= _COLUMNS else "\n  | ".join([f"export type {name} =", *quoted]) + ";"


def written(hint: Any) -> str:
    """A type hint in TypeScript."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Work:
        return "Work"
    if origin is Annotated:
        return written(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(written, arguments)))
    if origin is dict:
        return f"Record<string, {written(arguments[1])}>"
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        inner = written(arguments[0])
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if origin is tuple:
        return f"[{', '.join(map(written, arguments))}]"
    return _PLAIN.get(hint) or hint.__name__


def documented(record: type[Any]) -> tuple[str, dict[str, str]]:
    """The docstring of a record without its attributes, and what it says of them, by their names as listed there."""
    said, _, listed = textwrap.dedent("    " + (record.__doc__ or "")).partition(_ATTRIBUTES)
    return said, dict(re.findall(r"^ {4}([\w, ]+): (.+(?:\n {8}.+)*)", listed, re.MULTILINE))


def _comment(text: str, indent: str = "") -> Iterator[str]:
    words = " ".join(text.split())
    if not words:
        return
    if len(indent) + len(words) + len("/**  */") <= _COLUMNS:
        yield f"{indent}/** {words} */"
        return
    yield f"{indent}/**"
    yield from textwrap.wrap(words, _COLUMNS, initial_indent=f"{indent} * ", subsequent_indent=f"{indent} * ")
    yield f"{indent} */"


if __name__ == "__main__":
    TARGET.write_text(protocol())
