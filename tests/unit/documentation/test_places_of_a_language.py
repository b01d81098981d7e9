"""A language is one folder and one line, an architecture one row: whoever adds one touches nothing else."""

import ast
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import kernel_lsp
from kernel_lsp.compiler.toolchain.emulated import emulated_devices
from kernel_lsp.device import architectures, device
from kernel_lsp.device.choice import find_device
from kernel_lsp.device.device import device_named
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import source_part

PACKAGE = Path(kernel_lsp.__file__).parent
NAME_ONE = {
    "source/cuda.py": "its parser makes records of its language",
    "source/triton.py": "likewise",
    "refine/inline.py": "CUDA in a Python file is refined as CUDA",
    "refine/kernel_generation.py": "the languages that a kernel is generated in, a choice of the user's",
    "refine/offers.py": "a generated kernel of unknown language",
    "refine/dialogue/task.py": "a KernelBench answer is a Python file",
    "bench/plan.py": "likewise",
    "check/program.py": "a Triton file that was written for a run and is gone",
    "check/hints.py": "a file whose language is unknown gets CUDA's hints",
    "rules/rule.py": "the language of a rule's example, if it says none",
    "rules/correctness.py": "examples in Triton",
    "rules/performance.py": "a fix in Triton",
}
"""Modules outside `languages/` that name a language, and why a new one does not touch them."""
ROOMS = ("source", "mutations", "compiler", "runner", "workload", "refine")
WALK = """
from pathlib import Path
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.source.kernel import Language
from kernel_lsp.compiler.builds import key
from kernel_lsp.source.language import part_of, suffixes
from kernel_lsp.workload.imports import LIBRARIES
text = "import cutlass\\nimport cutlass.cute as cute\\n@cute.kernel\\ndef scale(x):\\n    pass\\n"
path = Path("scale.fifth")
assert ".fifth" in suffixes()
assert language_of(path, text) is Language.FIFTH
assert [kernel.name for kernel in find_kernels(text, path)] == ["scale"]
for room in %r:
    assert part_of(Language.FIFTH, room) is not None
assert "fifth_dsl" in LIBRARIES, "a user's copy of it is not imported in its place"
assert "fifth_dsl" in key._IMPORTABLE, "its version is part of a build's key"
print("walked")
"""


def is_language(node: ast.AST) -> bool:
    """Whether this is `Language.CUDA` or another member."""
    of_class = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Language"
    return of_class and node.attr in Language.__members__


def outside() -> dict[str, ast.Module]:
    """The modules of the package that speak of `Language`, but those of languages, by their path in it."""
    paths = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "languages" not in path.parents]
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in paths}
    return {name: ast.parse(text) for name, text in texts.items() if "Language" in text}


def test_nobody_else_asks_which_language_it_is() -> None:
    modules = outside()
    naming = {name for name, tree in modules.items() if any(map(is_language, ast.walk(tree)))}
    assert naming == set(NAME_ONE)
    asking = [
        f"{name}:{node.lineno}"
        for name in naming
        for node in ast.walk(modules[name])
        if (isinstance(node, ast.Compare) and any(map(is_language, [node.left, *node.comparators])))
        or (isinstance(node, ast.MatchValue) and is_language(node.value))
    ]
    assert asking == []


def test_a_fifth_language_is_one_folder_and_one_line(tmp_path: Path) -> None:
    package = shutil.copytree(PACKAGE, tmp_path / "kernel_lsp", ignore=shutil.ignore_patterns("__pycache__"))
    registry = package / "source/kernel.py"
    registered = registry.read_text().replace('    TORCH = "torch"', '    FIFTH = "fifth"\n    TORCH = "torch"')
    registry.write_text(registered)
    folder = shutil.copytree(package / "languages/cute", package / "languages/fifth")
    for path in folder.glob("*.py"):
        text = path.read_text().replace("languages.cute", "languages.fifth").replace("Language.CUTE", "Language.FIFTH")
        text = text.replace('packages: tuple[str, ...] = ("cutlass",)', 'packages: tuple[str, ...] = ("fifth_dsl",)')
        path.write_text(text.replace('(".py",)', '(".fifth",)'))
    command = [sys.executable, "-c", WALK % (ROOMS,)]
    walked = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert walked.stdout == "walked\n", walked.stderr


@pytest.mark.parametrize("language", Language)
def test_editors_find_the_files_of_every_language(language: Language) -> None:
    part = source_part(language)
    extension = PACKAGE.parent / "extension"
    told = (extension / "src/files.ts").read_text()
    events = json.loads((extension / "package.json").read_text())["activationEvents"]
    assert part.editor_ids
    for name in part.editor_ids:
        assert f'language: "{name}"' in told, "`DOCUMENTS` of extension/src/files.ts"
        assert f"onLanguage:{name}" in events, "`activationEvents` of extension/package.json"
    found = {f".{suffix}" for braces in re.findall(r"\*\.\{([\w,]+)\}", told) for suffix in braces.split(",")}
    assert part.python or found >= set(part.suffixes), "the pattern in `DOCUMENTS` of extension/src/files.ts"


@pytest.mark.parametrize("language", Language)
def test_every_language_has_its_row(language: Language) -> None:
    page = (PACKAGE.parent / "docs/languages.md").read_text()
    assert f"\n| `{language}` | " in page, "the first table of docs/languages.md"


def test_an_architecture_is_one_row_and_its_first_gpu_another(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(architectures.ARCHITECTURES["sm_120"], threads=1664)
    monkeypatch.setitem(architectures.ARCHITECTURES, "sm_990", limits)
    assert device_named("sm_990").limits == limits, "the table of architectures is enough to compile for it"
    row = replace(device_named("H100"), name="X100", arch="sm_990", multiprocessors=154, clock_mhz=2000)
    monkeypatch.setattr(device, "DEVICES", (*device.DEVICES, row))
    assert device_named("x100") == device_named("sm_990") == row
    monkeypatch.setattr("kernel_lsp.device.choice.find_gpus", lambda: ())
    assert find_device(None, ["X100"]) == row
    assert emulated_devices(row)[-1] == row
