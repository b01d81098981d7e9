"""Read and write the files of a sweep: lines of JSON, complete even after a killed call, and answers."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.refine.dialogue.answer import ModelAnswer, read_answer


def read_whole_lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file that calls append to. A line that a killed call left unfinished is cut off."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_whole(file, whole)
    return [json.loads(line) for line in whole.split("\n") if line]


def read_answers(file: Path, troubles: dict[str, str]) -> dict[str, ModelAnswer]:
    """Return a batch endpoint's answers by `custom_id`, the latest where there are several.

    A request that failed there has no answer; its error is added to `troubles`.
    """
    found: dict[str, ModelAnswer] = {}
    for number, line in enumerate(read_lines(file), 1):
        try:
            one = str(line["custom_id"])
            choices = ((line.get("response") or {}).get("body") or {}).get("choices")
            if not choices:
                error = line.get("error") or {}
                said = (error.get("error") or error).get("message") or "there is no answer in it"
                troubles[one] = f"{file}:{number}: {one} was not answered: {said}"
                continue
            message = choices[0]["message"]
            thought = message.get("reasoning") or message.get("reasoning_content") or ""
            whole = choices[0].get("finish_reason") != "length"
            found[one] = read_answer(message.get("content") or "", thought, complete=whole)
            troubles.pop(one, None)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            fix = "It must be the output of an OpenAI-compatible batch, one JSON object a line."
            raise ConfigurationError(
                f"This is not an answer of a batch endpoint: {error!r}.", file, number, fix
            ) from None
    return found


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a complete file; raise ConfigurationError where one is not JSON."""
    found: list[dict[str, Any]] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ConfigurationError(f"This line is not JSON: {error}.", file, number) from None
    return found


def write_whole(file: Path, text: str) -> None:
    """Write a file completely or not at all."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)


def append_line(file: Path, line: Mapping[str, Any]) -> None:
    """Append a line; it is on the disk when this returns."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line, ensure_ascii=False) + "\n")
        out.flush()
        os.fsync(out.fileno())
