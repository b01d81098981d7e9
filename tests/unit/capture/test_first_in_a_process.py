"""The recorder's first lines in a Python process hear of the modules that they wait for, whoever imports these."""

import os
import subprocess
import sys
from pathlib import Path

from kernel_lsp.capture.run import recording

PROGRAM = """
import importlib.abc, importlib.machinery, sys
sys.modules["torch"] = type(sys)("torch")

class Shared(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    '''As pytest's, which finds all modules of a project and is the loader of each.'''
    loaded = []

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "triton":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        return importlib.util.spec_from_file_location(
            name, found.origin, loader=self, submodule_search_locations=found.submodule_search_locations
        )

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        self.loaded.append(module.__name__)
        exec(open(module.__spec__.origin).read(), vars(module))

sys.meta_path.insert(0, Shared())
import triton.runtime.jit, triton.runtime.other
assert Shared.loaded[-1] == "triton.runtime.other", Shared.loaded
print(triton.runtime.jit.JITFunction.run is not triton.runtime.jit.plain, "other" in vars(triton.runtime))
"""


def test_a_finder_that_comes_later_hides_nothing(tmp_path: Path):
    package = tmp_path / "triton" / "runtime"
    package.mkdir(parents=True)
    for name in ("../__init__.py", "__init__.py", "other.py"):
        (package / name).write_text("")
    (package / "jit.py").write_text("def plain(self): ...\nclass JITFunction:\n    run = plain\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    answer = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=recording(os.environ, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.split() == ["True", "True"], answer.stderr
