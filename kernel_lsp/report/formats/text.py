"""One line for each finding, as editors and linters' front ends read it: `path:line:col: KL012 message`."""

from kernel_lsp.report.formats.results import CheckResults


def text(results: CheckResults) -> str:
    """The findings, errors first; columns count characters."""
    lines = [
        f"{found.path}:{found.line}:{results.characters(found.path, found.line, found.column)}: "
        f"{found.code} {' '.join(found.message.split())}\n"
        for found in results.findings()
    ]
    return "".join(lines)
