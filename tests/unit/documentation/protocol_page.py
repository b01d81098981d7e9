"""The tables of the protocol's page, made from its records: `python -m tests.unit.documentation.protocol_page`."""

import runpy
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernel_lsp.lsp.catalog import COMMANDS, JOBS
from kernel_lsp.lsp.requests import REQUESTS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/lsp-protocol.md"
TYPESCRIPT = runpy.run_path(str(ROOT / "extension/scripts/protocol.py"))


def with_tables(page: str) -> str:
    """Return the page with its tables replaced by those of the records as they are declared."""
    jobs = ((f"`{kind.name}`", kind.what, ", ".join(kind.needs)) for kind in JOBS.values())
    commands = ((f"`{one.full_name}`", ", ".join(one.arguments), one.answer) for one in COMMANDS)
    requests = (
        (f"`{one.method}`", f"`{one.params.__name__}`", f"`{one.result.__name__}`", one.what) for one in REQUESTS
    )
    for name, head, rows in (
        ("jobs", ("job", "what it does", "what it needs"), jobs),
        ("commands", ("command", "arguments", "answer"), commands),
        ("requests", ("request", "parameters", "result", "what it is for"), requests),
        ("records", ("record", "members", "meaning"), _records()),
    ):
        before, rest = page.split(f"<!-- {name} -->\n")
        _, after = rest.split(f"<!-- /{name} -->")
        page = f"{before}<!-- {name} -->\n{_table(head, rows)}\n<!-- /{name} -->{after}"
    return page


def _records() -> Iterator[tuple[str, ...]]:
    for record in TYPESCRIPT["records"]():
        name = f"`{record.__name__}`"
        if issubclass(record, StrEnum):
            yield name, ", ".join(f"`{one.value}`" for one in record), ""
            continue
        said, about = TYPESCRIPT["documented"](record)
        members = [_member(one) for one in TYPESCRIPT["members_of"](record)]
        notes = [f"`{names.replace(', ', '`, `')}`: {text}" for names, text in about.items()]
        yield name, ", ".join(members), " ".join(" ".join([said, *notes]).split()).replace("|", "\\|")


def _member(member: Any) -> str:
    written = TYPESCRIPT["written"](member.hint).replace("|", "\\|")
    return f"`{member.name}{'?' if member.optional else ''}: {written}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
