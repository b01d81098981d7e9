"""Apply answers of general models to the user's files: search-and-replace blocks or whole functions.

A block that is not found, is found twice, or changes other code than the kernel's and its launch's is rejected with a
message that the model can act on: nothing is guessed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_lsp.refine.dialogue.answer import RejectedAnswer
from kernel_lsp.refine.language import refine_part
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import source_part
from kernel_lsp.source.python import definitions
from kernel_lsp.source.text import Edit, Span, apply_edits

_BLOCK = re.compile(r"^<{5,9} ?SEARCH[ \t]*\n(.*?)^={5,9}[ \t]*\n(.*?)^>{5,9} ?REPLACE[ \t]*$", re.M | re.S)
_MARK = re.compile(r"^(?:<{5,9} ?SEARCH|>{5,9} ?REPLACE)", re.M)


@dataclass(frozen=True, slots=True)
class Editable:
    """A file that an answer may edit, and the names of the functions in it that may change.

    Attributes:
        name: what the model knows the file by.
        text: the file as it stands.
        language: how whole functions are told apart; None for plain Python.
        functions: names that may be edited; empty for all. Text outside functions may change where no other function
            stands: constants, macros, includes and new helpers belong to a kernel.
    """

    name: str
    text: str
    language: Language | None
    functions: frozenset[str] = frozenset()


def apply_answer(code: str, files: Sequence[Editable]) -> tuple[str, ...]:
    """Return the files' new texts, in the order given.

    Raises:
        RejectedAnswer: the code holds neither blocks nor a function of a file, or an edit does not fit.
    """
    texts = _replaced(code, files) if _MARK.search(code) else _whole_functions(code, files)
    if texts == tuple(file.text for file in files):
        raise RejectedAnswer("The answer changes nothing.")
    for file, text in zip(files, texts, strict=True):
        _refuse_strays(file, text)
    return texts


def _replaced(code: str, files: Sequence[Editable]) -> tuple[str, ...]:
    blocks = _BLOCK.findall(code)
    if len(blocks) * 2 != len(_MARK.findall(code)):
        raise RejectedAnswer("A search/replace block is not complete: SEARCH, =======, REPLACE, each on its own line.")
    texts = [file.text for file in files]
    for number, (old, new) in enumerate(blocks, 1):
        if not old.strip():
            raise RejectedAnswer(f"Block {number} searches for nothing. Quote the lines that it replaces.")
        hits = [(i, count) for i, text in enumerate(texts) if (count := text.count(old))]
        if not hits:
            raise RejectedAnswer(f"Block {number} is not found. Quote the lines exactly:\n{_first_line(old)}")
        if len(hits) > 1 or hits[0][1] > 1:
            raise RejectedAnswer(f"Block {number} is found more than once. Quote more lines:\n{_first_line(old)}")
        texts[hits[0][0]] = texts[hits[0][0]].replace(old, new)
    return tuple(texts)


def _whole_functions(code: str, files: Sequence[Editable]) -> tuple[str, ...]:
    """Replace each function of the files by the answer's function of the same name."""
    texts: list[str] = []
    taken: set[str] = set()
    for file in files:
        given, there = functions(code, file.language), functions(file.text, file.language)
        edits = [Edit(there[name], _cut(code, span)) for name, span in given.items() if name in there]
        taken |= {name for name in given if name in there}
        if any(_breaks_string(file, edit) for edit in edits):
            raise RejectedAnswer("A function with a backslash stands in a string here: use a search/replace block.")
        texts.append(_applied(file.text, edits))
    if not taken:
        names = ", ".join(f"`{name}`" for file in files for name in functions(file.text, file.language))
        raise RejectedAnswer(f"The code holds neither search/replace blocks nor one of the functions {names}.")
    fresh = [n for file in files for n in functions(code, file.language) if n not in taken]
    if fresh:
        raise RejectedAnswer(
            f"`{fresh[0]}` is new: add it by a search/replace block, beside the function that uses it."
        )
    return tuple(texts)


def functions(text: str, language: Language | None) -> dict[str, Span]:
    """Return the functions at the top of a file, by name; `language` None is plain Python."""
    return definitions(text) if language is None else refine_part(language).functions(text)


def _refuse_strays(file: Editable, text: str) -> None:
    """Reject an answer that changed functions it may not change."""
    if not file.functions or text == file.text:
        return
    before, after = functions(file.text, file.language), functions(text, file.language)
    for name, span in before.items():
        if name in file.functions:
            continue
        if name not in after or _cut(text, after[name]) != _cut(file.text, span):
            allowed = ", ".join(f"`{n}`" for n in sorted(file.functions))
            raise RejectedAnswer(f"`{name}` in {file.name} is not yours to change; you may change {allowed}.")


def _breaks_string(file: Editable, edit: Edit) -> bool:
    """Return True if an edit would put a backslash into a Python string, outside of whole functions and classes."""
    if file.language is None or not source_part(file.language).python or "\\" not in edit.text:
        return False
    return edit.span not in definitions(file.text, classes=True).values()


def _applied(text: str, edits: list[Edit]) -> str:
    try:
        return apply_edits(text, edits)
    except ValueError:
        raise RejectedAnswer("One of the answer's functions stands within another. Give the outer one alone.") from None


def _cut(text: str, span: Span) -> str:
    return text.encode()[span.start : span.end].decode()


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")[:120]
