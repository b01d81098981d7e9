"""A home of a test's own for programs that it starts."""

from pathlib import Path

from kernel_lsp.compiler.toolchain.toolkit import unpacked_headers

_HEADERS = unpacked_headers()


def private_home(home: Path) -> dict[str, str]:
    """Return the variables of a home in which nothing is kept but NVRTC's headers, which all tests share."""
    folders = {name: home / name for name in ("config", "data", "cache")}
    link = folders["cache"] / "kernel-lsp" / _HEADERS.name
    if not link.exists():
        _HEADERS.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(_HEADERS)
    return {f"XDG_{name.upper()}_HOME": str(folder) for name, folder in folders.items()}
