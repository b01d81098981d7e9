"""The page of settings, made from their declarations: `python -m tests.unit.documentation.settings_page` writes it."""

import json
from pathlib import Path

from kernel_lsp.config.load import options
from kernel_lsp.report.units import size_text

PAGE = Path(__file__).parents[3] / "docs/settings.md"
_BEGIN, _END = "<!-- settings -->\n", "<!-- /settings -->"
_COMPUTED = {  # defaults that depend on the machine
    "runner.compile_workers": "cores - 1",
    "paths.data": "`kernel-lsp` in your folder for data",
    "paths.cache": "`kernel-lsp` in your folder for caches",
}
_SIZES = ("build.cache_limit", "model.reserve")


def with_settings(page: str) -> str:
    """Return the page with its table replaced by that of the settings as they are declared."""
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for key, option in options().items():
        default = option.field.get_default(call_default_factory=True)
        rows.append(f"| `{key}` | {_shown(key, default)} | {option.about} |")
    return before + _BEGIN + "\n".join(rows) + "\n" + _END + after


def _shown(key: str, default: object) -> str:
    """Return a default as a settings file would say it."""
    if key in _COMPUTED:
        return _COMPUTED[key]
    if default is None:
        return "unset"
    return f"`{size_text(default)}`" if key in _SIZES else f"`{json.dumps(default)}`"


if __name__ == "__main__":
    PAGE.write_text(with_settings(PAGE.read_text()))
