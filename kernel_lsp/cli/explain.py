"""`kernel-lsp explain`: what a rule reports, why it matters and what cures it."""

from typing import Annotated

import typer

from kernel_lsp.cli.console import out
from kernel_lsp.report.rules import rule_view, rules_view
from kernel_lsp.rules.catalog import RULES, find_rule

app = typer.Typer(add_completion=False)


@app.command()
def explain(rule: Annotated[str | None, typer.Argument(help="Its id (KL012) or name (bank-conflict).")] = None) -> None:
    """Show the page of a rule, or list them all."""
    out.print(rules_view(RULES.values()) if rule is None else rule_view(find_rule(rule)))
