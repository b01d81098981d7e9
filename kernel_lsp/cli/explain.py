"""`kernel-lsp explain`: shows the page of a rule, or a guide such as that on workloads."""

from typing import Annotated

import typer

from kernel_lsp.cli.console import out
from kernel_lsp.report.guides import GUIDES, guide_view
from kernel_lsp.report.rules import rule_view, rules_view
from kernel_lsp.rules.catalog import RULES, find_rule

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    topic: Annotated[
        str | None, typer.Argument(help="A rule's id (KL012) or name (bank-conflict), or workload.")
    ] = None,
) -> None:
    """Show the page of a rule, or list all rules; `explain workload` shows how to write a workload."""
    if topic is None:
        out.print(rules_view(RULES.values()))
    elif topic in GUIDES:
        out.print(guide_view(topic))
    else:
        out.print(rule_view(find_rule(topic)))
