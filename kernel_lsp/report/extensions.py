"""How an extension was built, in words."""

from kernel_lsp.judge.verdict import ExtensionRecord
from kernel_lsp.report.units import seconds_text


def extension_text(extension: ExtensionRecord) -> str:
    """`relu fast, host 2.10 s, device cached`, or `relu in full, 61.0 s, since it calls torch::matmul`."""
    if extension.path == "full":
        return f"{extension.name} in full, {_spent(extension.seconds_host, extension.cached_host)}, {extension.reason}"
    host = _spent(extension.seconds_host, extension.cached_host)
    return f"{extension.name} fast, host {host}, device {_spent(extension.seconds_device, extension.cached_device)}"


def _spent(seconds: float, cached: bool) -> str:
    return "cached" if cached else seconds_text(seconds)
