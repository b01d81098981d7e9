"""Pages of the documentation that are part of the program, as they are read in a terminal."""

from importlib.resources import files

from rich.markdown import Markdown

GUIDES = {"workload": ("kernel_lsp.workload", "workloads.md")}
"""Package and file of each guide, by the name that `kernel-lsp explain` takes."""


def guide_view(name: str) -> Markdown:
    """Render the guide with this name, which must be one of `GUIDES`."""
    package, page = GUIDES[name]
    return Markdown((files(package) / page).read_text(encoding="utf-8"))
