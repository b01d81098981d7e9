"""The thin header of host code, compiled once for all tests of a session: that takes longer than any of them."""

import os
import shutil
from pathlib import Path

from kernel_lsp.compiler.host.compiler import prepare_header
from tests.shared_folder import shared_folder


def with_host_header(folder: Path) -> Path:
    """Return `folder`, in which builders now find the header as if they had compiled it there before."""
    with shared_folder("host-header") as shared:
        prepare_header(shared)
    for made in shared.glob("header-*"):  # none without a host compiler
        if not (folder / made.name).exists():
            shutil.copytree(made, folder / made.name, copy_function=os.link)
    return folder
