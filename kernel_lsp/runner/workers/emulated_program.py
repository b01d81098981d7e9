"""Runs a Python program on the emulator instead of a GPU: `python -m` this module, a file and its arguments."""

import importlib
import os
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Run the file that the command line names as `__main__`."""
    importlib.import_module("torch._dynamo")  # while torch does not yet believe in a GPU
    from kernel_lsp.compiler.emulated import STANDS_IN
    from kernel_lsp.runner.workers.emulator import Emulator

    os.environ["KERNEL_LSP_EMULATE"] = "1"
    path = Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.path[0] = str(path.resolve().parent)
    emulator = Emulator(STANDS_IN)
    emulator.expect(path, triton=True)
    with emulator.placement():
        emulator.begin((), ())
        runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()
