"""Loads the settings from all their sources; later ones win.

In order: the defaults, the user's file (`kernel-lsp/settings.toml` in the configuration folder), the nearest
`pyproject.toml` with a table `[tool.kernel-lsp]`, the environment (`KERNEL_LSP_JUDGE_DELTA` for `judge.delta`), and the
command line or the editor.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import platformdirs
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from kernel_lsp.config.settings import APP, Settings
from kernel_lsp.errors import ConfigurationError

_ENVIRONMENT_PREFIX = "KERNEL_LSP_"


@dataclass(frozen=True)
class Option:
    """One leaf of the tree of settings.

    Attributes:
        key: its dotted name (`judge.delta`).
        field: its declaration: type, limits, default and description.
    """

    key: str
    field: FieldInfo

    @property
    def variable(self) -> str:
        """Return the environment variable that sets it."""
        return _ENVIRONMENT_PREFIX + self.key.replace(".", "_").upper()

    @property
    def about(self) -> str:
        """Return its meaning, one line."""
        return (self.field.description or "").partition("\n")[0]

    @property
    def values(self) -> dict[str, str]:
        """Return the meaning of each value that it may have, as its docstring lists them; empty if it lists none."""
        listed = (self.field.description or "").partition("\n\n")[2].splitlines()
        return dict(line.split(": ", 1) for line in listed)

    def validate(self, value: object, base: Path | None) -> object:
        """Return the value in its declared type.

        Raises:
            ValidationError: it does not fit.
        """
        adapter: TypeAdapter[object] = TypeAdapter(self.field.rebuild_annotation())
        return adapter.validate_python(value, context={"base": base})


@cache
def options() -> dict[str, Option]:
    """Return every setting by its dotted name, in the order of declaration."""
    return {option.key: option for option in _leaves(Settings, "")}


def load_settings(
    start: Path | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    strict: bool = True,
    environment: Mapping[str, str] | None = None,
    user_file: Path | None = None,
) -> tuple[Settings, tuple[ConfigurationError, ...]]:
    """Return the settings in force, and the errors in their sources.

    Args:
        start: file or folder from which `pyproject.toml` is looked for upward; the working folder by default.
        overrides: settings of the command line or the editor, nested or with dotted keys.
        strict: raise at the first wrong value; otherwise ignore it, so that an earlier source's value holds.
        environment: instead of the process's own.
        user_file: instead of the one in the user's folder for configuration.

    Raises:
        ConfigurationError: a value is wrong and `strict` is set.
    """
    problems: list[ConfigurationError] = []
    tree: dict[str, object] = {}
    environment = os.environ if environment is None else environment
    for layer in _layers(start, user_file, environment, overrides or {}, problems):
        for key, value in _flatten(layer.values):
            try:
                _put(tree, key, _checked(key, value, layer))
            except ConfigurationError as problem:
                problems.append(problem)
    if strict and problems:
        raise problems[0]
    return Settings.model_validate(tree), tuple(problems)


@dataclass(frozen=True)
class _Layer:
    """One source of settings; `table` is the TOML table that holds them."""

    name: str
    values: Mapping[str, object]
    path: Path | None = None
    table: str = ""
    text: str = ""


def _layers(
    start: Path | None,
    user_file: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, object],
    problems: list[ConfigurationError],
) -> Iterator[_Layer]:
    user_file = user_file or platformdirs.user_config_path(APP) / "settings.toml"
    if user_file.is_file():
        text, values = _read_toml(user_file, problems)
        yield _Layer("your settings", values, user_file, "", text)
    start = Path(os.path.realpath(start or Path()))  # unlike `resolve`, it accepts a loop of links
    for folder in (start, *start.parents):
        project = folder / "pyproject.toml"
        if not project.is_file():
            continue
        text, values = _read_toml(project, problems)
        tool = values.get("tool")
        if isinstance(tool, dict) and APP in tool:
            yield _Layer("the project's settings", tool[APP], project, f"tool.{APP}", text)
            break
    yield _Layer("the environment", _from_environment(environment))
    yield _Layer("the request", overrides)


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the settings in `KERNEL_LSP_*` variables; an unknown one keeps its own name, to be reported."""
    keys = {option.variable: option.key for option in options().values()}
    return {keys.get(name, name): text for name, text in environment.items() if name.startswith(_ENVIRONMENT_PREFIX)}


def _checked(key: str, value: object, layer: _Layer) -> object:
    if not key:
        raise _problem(f"{layer.name.capitalize()} are not a table.", key, layer, "Write them as names with values.")
    option = options().get(key)
    known = [o.variable for o in options().values()] if key.startswith(_ENVIRONMENT_PREFIX) else list(options())
    if option is None:
        near = difflib.get_close_matches(key, known, 1, 0.5)
        section = key in {name.rpartition(".")[0] for name in options()}
        fix = f"Did you mean `{near[0]}`?" if near else f"The settings are: {', '.join(known)}."
        if section:
            fix = f"It is a table; write for instance `{next(n for n in known if n.startswith(key + '.'))} = ...`."
        raise _problem(f"`{key}` is not a setting.", key, layer, fix)
    try:
        return option.validate(value, layer.path.parent if layer.path else Path.cwd())
    except ValidationError as error:
        first = error.errors()[0]
        why = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        name = option.variable if layer.name == "the environment" else key
        message = f"`{name} = {_as_written(value)}` in {layer.name} is not usable: {why}."
        raise _problem(message, key, layer, f"It is: {option.about}") from None


def _problem(message: str, key: str, layer: _Layer, fix: str) -> ConfigurationError:
    line = _line_of(f"{layer.table}.{key}".strip("."), layer.text)
    return ConfigurationError(message, path=layer.path, line=line, fix=fix)


def _read_toml(path: Path, problems: list[ConfigurationError]) -> tuple[str, dict[str, object]]:
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        problems.append(ConfigurationError(f"The file cannot be read: {error}.", path))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        fix = "Fix the file; its settings are left out until then."
        problems.append(ConfigurationError(f"This is not TOML: {error}.", path, int(at[1]) if at else None, fix))
    return "", {}


def _line_of(dotted: str, text: str) -> int | None:
    """Return the line on which a TOML key is set; a search good enough to point at, not a parser."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            table = header[1].replace('"', "").replace(" ", "")
        elif assignment := re.match(r"""\s*([\w\-."' ]+?)\s*=""", line):
            key = f"{table}.{assignment[1]}".replace('"', "").replace("'", "").replace(" ", "").lstrip(".")
            if dotted == key or dotted.startswith(key + "."):
                return number
    return None


def _flatten(values: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(values, Mapping):
        yield prefix, values
        return
    for name, value in values.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping) and key not in options():
            yield from _flatten(value, key)
        else:
            yield key, value


def _put(tree: dict[str, object], dotted: str, value: object) -> None:
    *sections, name = dotted.split(".")
    for section in sections:
        branch = tree.setdefault(section, {})
        assert isinstance(branch, dict)
        tree = branch
    tree[name] = value


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[Option]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, f"{prefix}{name}.")
        else:
            yield Option(prefix + name, field)


def _as_written(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
