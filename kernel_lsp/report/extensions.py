"""How an extension was built, in words."""

from kernel_lsp.judge.verdict import ExtensionRecord
from kernel_lsp.report.units import seconds_text


def extension_text(extension: ExtensionRecord) -> str:
    """`relu fast for sm_90a, host 2.10 s, device cached`, or `relu in full for sm_90, 61.0 s, since it calls ...`."""
    target = f" for {extension.arch}" if extension.arch else ""
    host = _spent(extension.seconds_host, extension.cached_host)
    if extension.path == "full":
        return f"{extension.name} in full{target}, {host}, {extension.reason}"
    device = _spent(extension.seconds_device, extension.cached_device)
    return f"{extension.name} fast{target}, host {host}, device {device}"


def _spent(seconds: float, cached: bool) -> str:
    return "cached" if cached else seconds_text(seconds)
