"""Prompts from templates. A user's own folder comes first, file by file, so that any wording can be replaced.

The parts of a prompt and their order are those of the model's published protocol; see ARCHITECTURE.md for what is said
otherwise and why.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound

from kernel_lsp.errors import ConfigurationError

TEMPLATES = Path(__file__).parent / "templates"


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
        """Whether prompts hold more of the briefing than the GPU's name."""
        return self.format == "edits"

    def render(self, name: str, **values: Any) -> str:
        """One template with its values.

        Raises:
            ConfigurationError: a template of the user's own is faulty or asks for what there is not.
        """
        try:
            return _environment(self.format, self.own).get_template(f"{name}.j2").render(**values).strip() + "\n"
        except TemplateNotFound:
            if name == "system":
                return ""  # most models take none
            raise
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            file = (self.own or TEMPLATES / self.format) / f"{name}.j2"
            raise ConfigurationError(f"The template cannot be used: {error}.", file, line) from None

    def example(self) -> dict[str, str] | None:
        """The worked example of the first turn, where the format has one."""
        names = {"architecture": "example.py.txt", "answer": "example_answer.py.txt", "summary": "example_summary.txt"}
        found: dict[str, str] = {}
        for part, name in names.items():
            for folder in filter(None, (self.own, TEMPLATES / self.format)):
                if (folder / name).is_file():
                    found[part] = (folder / name).read_text(encoding="utf-8").strip()
                    break
        return found if len(found) == len(names) else None


@cache
def _environment(format_: str, own: Path | None) -> Environment:
    folders = [folder for folder in (own, TEMPLATES / format_, TEMPLATES) if folder is not None]
    made = Environment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    made.filters["numbered"] = _numbered
    return made


def _numbered(text: str) -> str:
    """The text with its line numbers."""
    lines = text.rstrip("\n").splitlines()
    width = len(str(len(lines)))
    return "\n".join(f"{number:>{width}} | {line}" for number, line in enumerate(lines, 1))
