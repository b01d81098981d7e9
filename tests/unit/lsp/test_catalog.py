"""Jobs and commands are declared once; what is made of the declarations fits them."""

import ast
from pathlib import Path
from pkgutil import resolve_name

import pytest

from kernel_lsp.lsp.catalog import COMMANDS, JOBS, Command, JobKind, JobSubject, Need
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.initialize import answer_initialize
from kernel_lsp.lsp.job import JobRequest
from kernel_lsp.lsp.process import Service
from kernel_lsp.lsp.server import Server
from kernel_lsp.refine.kernel_generation import LANGUAGES

LSP = Path(__file__).parents[3] / "kernel_lsp/lsp"
NEW = JobKind(
    "annotate", "annotates", JobSubject.KERNEL_FILE, "source.annotate", "Annotate {name}", "Annotating {name}", "", ()
)


@pytest.mark.parametrize("kind", JOBS.values(), ids=lambda kind: kind.name)
def test_the_function_that_does_a_job_is_there(kind: JobKind) -> None:
    assert callable(resolve_name(kind.handler))


@pytest.mark.parametrize("kind", JOBS.values(), ids=lambda kind: kind.name)
def test_titles_name_the_kernel_and_the_label(kind: JobKind) -> None:
    path = Path("/a/k.cu")
    wanted = JobRequest(kind, Document(path.as_uri(), path, "", 1, "utf-16"), "k", "num_warps 4 -> 2")
    assert "k" in wanted.title
    assert "{" not in wanted.title


def test_no_job_runs_where_nothing_is_trusted() -> None:
    assert all({Need.FILE, Need.TRUST} <= {*kind.needs} for kind in JOBS.values())


def test_modules_are_written_in_the_languages_that_there_are() -> None:
    [kind] = [kind for kind in JOBS.values() if kind.subject is JobSubject.MODULE]
    assert set(dict(kind.choices)) == set(LANGUAGES)


def test_a_job_that_is_declared_is_announced_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One declaration is all that the server needs to offer a job."""
    import kernel_lsp.lsp.features.job_requests as requests
    import kernel_lsp.lsp.initialize as initialize
    import kernel_lsp.lsp.server as server

    monkeypatch.setitem(JOBS, NEW.name, NEW)
    for module in (initialize, server):
        monkeypatch.setattr(module, "COMMANDS", (*COMMANDS, NEW.command))
    assert NEW in requests.JOBS.values()
    answered = answer_initialize(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}')
    assert answered is not None
    assert "kernel-lsp.annotate" in answered[1]["result"]["capabilities"]["executeCommandProvider"]["commands"]
    assert "kernel-lsp.annotate" in Server({}, Service()).client.protocol.fm.commands


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        (("uri", "kernel?"), ["u"], ["u", None]),
        (("uri", "kernel?"), ["u", None], ["u", None]),
        (("uri", "kernel?"), ["u", "k"], ["u", "k"]),
        ((), [], []),
        (("folder...",), [], []),
        (("folder...",), ["a", "b"], ["a", "b"]),
    ],
)
def test_arguments_are_texts(arguments: tuple[str, ...], given: list[object], expected: list[str | None]) -> None:
    assert Command("c", arguments, "").texts(given) == expected


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (("uri", "kernel?"), []),
        (("uri", "kernel?"), [None]),
        (("uri", "kernel?"), ["u", 1]),
        (("uri",), ["u", "k"]),
        (("folder...",), [None]),
        ((), ["u"]),
    ],
)
def test_others_are_refused_with_what_it_takes(arguments: tuple[str, ...], given: list[object]) -> None:
    with pytest.raises(ValueError, match=r"kernel-lsp\.c` takes"):
        Command("c", arguments, "").texts(given)


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports within functions and for types alone count too."""
    left = {_name(path): _imported(path) for path in LSP.rglob("*.py")}
    while leaves := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in leaves:
            del left[name]
    assert left == {}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(LSP.parents[1]).with_suffix("").parts)


def _imported(path: Path) -> set[str]:
    """Names of the modules that a file imports, and of what it imports from them, which may be modules too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found - {_name(path)}
