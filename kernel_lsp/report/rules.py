"""Rules as they are read in a terminal."""

from collections.abc import Iterable
from itertools import groupby

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.rules.rule import Rule


def rule_view(rule: Rule) -> RenderableType:
    """The page of one rule."""
    return Markdown(rule.page)


def rules_view(rules: Iterable[Rule]) -> RenderableType:
    """All rules, a line each, under their groups; errors in red."""
    parts: list[RenderableType] = []
    for group, members in groupby(rules, key=lambda rule: rule.group):
        table = Table.grid(padding=(0, 2, 0, 0))
        for rule in members:
            style = "red" if rule.severity is Severity.ERROR else "yellow"
            table.add_row(Text(f"  {rule.id}", style), Text(rule.name, "bold"), Text(rule.summary))
        parts += [Text(group.value, "dim"), table]
    return Group(*parts)
