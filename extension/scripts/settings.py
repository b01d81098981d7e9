"""Writes the settings of `kernel_lsp.config` into package.json: `python extension/scripts/settings.py`."""

import json
import re
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernel_lsp.config.load import Option, options
from kernel_lsp.report.units import size_text

MANIFEST = Path(__file__).parents[1] / "package.json"
OWN = "Server"
"""Title of the one section that is the extension's own; all others are generated."""

_PREFIX = "kernel-lsp."
_RUNS_CODE = ("build.", "capture.", "kernelbench.", "model.", "paths.", "runner.", "refine.proposers", "workloads")
_FIRST = ("General", "Editor", "Refine", "Check", "Model")
"""Sections for everybody; the others follow as they are declared, and the extension's own comes last."""
_NAMES = {"kernelbench": "KernelBench"}
_PATTERNS = {"1s": r"^\d+(\.\d+)?\s*(ms|s|m|h)?$", "1KiB": r"^\d+(\.\d+)?\s*([KMGT]i?B|B)?$"}
"""Texts for quantities, by a quantity that their settings accept: VS Code lets its user edit a text in place."""
_COMPUTED = ("runner.compile_workers", "paths.data", "paths.cache")  # defaults that depend on the machine
_KEPT = ("type", "enum", "items", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern")


def with_settings(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the settings as they are declared now."""
    contributes = manifest["contributes"]
    own = [section for section in contributes["configuration"] if section["title"] == OWN]
    sections: dict[str, dict[str, Any]] = {}
    for option in options().values():
        name = option.key.partition(".")[0]
        title = _NAMES.get(name, name.title()) if "." in option.key else "General"
        sections.setdefault(title, {})[_named(option.key)] = _property(option)
    order = [*_FIRST, *(title for title in sections if title not in _FIRST), OWN]
    generated = [{"title": title, "properties": properties} for title, properties in sections.items()]
    configuration = [section | {"order": order.index(section["title"])} for section in (*own, *generated)]
    restricted = [key for section in own for key, one in section["properties"].items() if one["scope"] != "window"]
    restricted += [_named(key) for key in options() if key.startswith(_RUNS_CODE)]
    trust = manifest["capabilities"]["untrustedWorkspaces"] | {"restrictedConfigurations": restricted}
    return manifest | {
        "capabilities": manifest["capabilities"] | {"untrustedWorkspaces": trust},
        "contributes": contributes | {"configuration": configuration},
    }


def as_text(manifest: dict[str, Any]) -> str:
    """The manifest as it stands in its file."""
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


def _named(key: str) -> str:
    """A setting's name in VS Code, which shows `secondOpinion` as `Second Opinion` and underscores as they are."""
    return _PREFIX + re.sub("_([a-z])", lambda found: found[1].upper(), key)


def _property(option: Option) -> dict[str, Any]:
    found = _kept(TypeAdapter(option.field.rebuild_annotation()).json_schema())
    default = option.field.get_default(call_default_factory=True)
    for unit in ("1s", "1KiB"):
        if found["type"] in ("number", "integer") and _accepts(option, unit):
            found = {"type": "string", "pattern": _PATTERNS[unit]}
            default = size_text(default) if unit == "1KiB" else f"{default:g}s"
    if found["type"] == ["string", "null"] and "enum" not in found:
        # VS Code edits no text in place that may be null; the extension tells the server null for an empty one.
        found, default = {"type": "string"}, default or ""
    if "enum" in found:
        found["enum"] = [*found["enum"], *([None] if default is None else [])]
        found["enumDescriptions"] = [option.values[one or "unset"] for one in found["enum"]]
    if option.key not in _COMPUTED:
        found["default"] = default
    scope = "machine-overridable" if option.key.startswith("paths.") else "window"
    return found | {"scope": scope, "markdownDescription": option.about}


def _kept(schema: dict[str, Any]) -> dict[str, Any]:
    """What VS Code understands of a schema; `None` beside a type is one more type."""
    if "anyOf" not in schema:
        return {key: schema[key] for key in _KEPT if key in schema}
    kinds = [_kept(one) for one in schema["anyOf"]]
    merged = {key: value for one in kinds for key, value in one.items()}
    return merged | {"type": [one["type"] for one in kinds]}


def _accepts(option: Option, value: str) -> bool:
    try:
        option.validate(value, None)
    except ValidationError:
        return False
    return True


if __name__ == "__main__":
    MANIFEST.write_text(as_text(with_settings(json.loads(MANIFEST.read_text()))))
