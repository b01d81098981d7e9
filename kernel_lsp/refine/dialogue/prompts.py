"""Render prompts from templates; a user's own folder comes first, so that any text can be replaced.

The parts of a prompt and their order are those of the model's published protocol; see docs/models.md for what is said
otherwise and why.
"""

import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kernel_lsp.errors import ConfigurationError

TEMPLATES = Path(__file__).parent / "templates"
# Errors that a template can raise, besides jinja's own.
_FAULTS = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, OSError)


@dataclass(frozen=True, slots=True)
class Prompts:
    """The templates of one format.

    Attributes:
        format: folder of the templates: `kernelbench-cuda`, `kernelbench-triton` or `edits`.
        own: a folder whose files take the place of those of the same name; None where the user has none.
    """

    format: str
    own: Path | None = None

    @property
    def tells_facts(self) -> bool:
        """True if prompts hold more of the briefing than the GPU's name."""
        return self.format == "edits"

    def render(self, name: str, **values: Any) -> str:
        """Return one template filled with its values.

        Raises:
            ConfigurationError: a template of the user's own is faulty or asks for what there is not.
        """
        folder = next((folder for folder in self._folders() if (folder / f"{name}.j2").is_file()), None)
        if folder is None and name == "system":
            return ""  # most models need none
        try:
            return _environment(self._folders()).get_template(f"{name}.j2").render(**values).strip() + "\n"
        except _FAULTS as error:
            file, line = _place(error, (folder or self._folders()[0]) / f"{name}.j2")
            said = f"The template cannot be used: {str(error).rstrip('.')}."
            raise ConfigurationError(said, file, line, fix="Fix it, or take it out of `model.templates`.") from None

    def example(self) -> dict[str, str] | None:
        """Return the worked example of the first turn; None if the format has none."""
        names = {"architecture": "example.py.txt", "answer": "example_answer.py.txt", "summary": "example_summary.txt"}
        found: dict[str, str] = {}
        for part, name in names.items():
            for folder in self._folders():
                if (folder / name).is_file():
                    found[part] = (folder / name).read_text(encoding="utf-8").strip()
                    break
        return found if len(found) == len(names) else None

    def _folders(self) -> tuple[Path, ...]:
        return tuple(folder for folder in (self.own, TEMPLATES / self.format, TEMPLATES) if folder is not None)


def _place(error: Exception, template: Path) -> tuple[Path, int | None]:
    """Return file and line of an error: in the template, or in one that it includes."""
    if isinstance(error, TemplateSyntaxError):
        return Path(error.filename or template), error.lineno
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
    return (Path(frames[-1].filename), frames[-1].lineno) if frames else (template, None)


@cache
def _environment(folders: tuple[Path, ...]) -> Environment:
    made = ImmutableSandboxedEnvironment(  # templates may come with a project of others
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    made.filters["numbered"] = _numbered
    return made


def _numbered(text: str) -> str:
    """Return the text with line numbers."""
    lines = text.rstrip("\n").splitlines()
    width = len(str(len(lines)))
    return "\n".join(f"{number:>{width}} | {line}" for number, line in enumerate(lines, 1))
