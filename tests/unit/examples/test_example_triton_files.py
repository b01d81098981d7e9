"""The Triton examples: each has a workload of the documented form, computes what it says and compiles."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.spec import WorkloadFile, require_workload
from tests.sampling import params

EXAMPLES = Path(__file__).parents[3] / "examples" / "triton"
WITHOUT_GPU = Path(__file__).with_name("triton_without_gpu.py")
KERNEL_FILES = sorted(path for path in EXAMPLES.glob("*.py") if not path.stem.endswith("_workload"))
CAPABILITIES = ("80", "90", "120")

# Off every block size, and small enough for the interpreter, where the odd cases of the workloads are made for a GPU.
ODD_CASES = {
    "attention": {"batch": 1, "heads": 2, "seq_len": 205, "dim": 32},
    "attention_descriptors": {"batch": 1, "heads": 2, "seq_len": 205, "dim": 32},
    "cross_entropy": {"tokens": 3, "vocab": 5021},
    "cross_entropy_training": {"tokens": 5, "vocab": 2501, "factor": 0.5},
    "layernorm": {"tokens": 3, "hidden": 2500},
    "matmul": {"m": 200, "n": 177, "k": 113},
    "rmsnorm": {"rows": 3, "cols": 781},
    "rmsnorm_training": {"rows": 133, "cols": 77},
    "rotary": {"batch": 3, "seq_len": 7, "q_heads": 12, "k_heads": 3, "dim": 64},
    "softmax": {"rows": 3, "cols": 781},
    "swiglu": {"tokens": 3, "hidden": 5461},
}

each_example = pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: path.stem)
a_quick_example = pytest.mark.parametrize(
    "path", params(KERNEL_FILES, [EXAMPLES / "rmsnorm.py"], lambda path: path.stem)
)  # the others are `thorough`


def workload_of(path: Path) -> WorkloadFile:
    return require_workload(SourceFile(path, path.read_text(encoding="utf-8")))


def functions(tree: ast.Module) -> dict[str, list[str]]:
    """Parameter names of the top-level functions."""
    return {node.name: [arg.arg for arg in node.args.args] for node in tree.body if isinstance(node, ast.FunctionDef)}


def declaration(tree: ast.Module, name: str) -> object:
    """The value of a top-level `NAME = ...` made of literals and `dict(key=literal)`, or None."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return eval(ast.unparse(node.value), {"__builtins__": {"dict": dict}})
    return None


def cases_of(path: Path) -> list[dict[str, int]]:
    cases = declaration(ast.parse(workload_of(path).source.text), "CASES")
    assert isinstance(cases, list)
    return cases


def without_gpu(mode: str, path: Path, *arguments: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    return subprocess.run(
        [sys.executable, str(WITHOUT_GPU), mode, str(path), *arguments],
        env=environment | {"TRITON_CACHE_DIR": str(scratch), "PYTHONPATH": str(EXAMPLES.parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_examples_are_those_with_odd_cases():
    assert [path.stem for path in KERNEL_FILES] == sorted(ODD_CASES)


def test_both_places_for_a_workload_and_an_omitted_launch_are_shown():
    workloads = [workload_of(path) for path in KERNEL_FILES]
    assert sum(workload.in_kernel_file for workload in workloads) == 2
    assert [workload.kernel_path.stem for workload in workloads if not workload.has_launch] == ["swiglu"]


@each_example
def test_workload_has_the_documented_form(path: Path):
    workload = workload_of(path)
    tree = ast.parse(workload.source.text)
    parameters = functions(tree)
    cases = cases_of(path)
    assert 3 <= len(cases) <= 5
    assert all(list(case) == parameters["inputs"][: len(case)] for case in cases), "later ones have defaults"
    if workload.has_launch:
        assert parameters["launch"] == ["module", *parameters["reference"]]
    else:
        public = [name for name in functions(ast.parse(path.read_text(encoding="utf-8"))) if not name.startswith("_")]
        assert public == [path.stem]
    contract = declaration(tree, "CONTRACT") or {}
    assert isinstance(contract, dict)
    assert set(contract) <= {"contiguous", "aligned", "mutates", "finite"}
    assert set(contract.get("mutates", ())) <= set(parameters["reference"])


@each_example
def test_importing_an_example_runs_nothing(path: Path):
    for file in {path, workload_of(path).source.path}:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree)
        assert all(
            isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Assign)
            for node in tree.body[1:]
        )


@a_quick_example
def test_interpreted_launch_agrees_with_the_reference(path: Path, tmp_path: Path):
    cases = [cases_of(path)[0], ODD_CASES[path.stem]]
    done = without_gpu("interpret", path, *map(json.dumps, cases), scratch=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) >= 7 * len(cases)


def test_interpreted_launch_of_a_wrong_kernel_disagrees(tmp_path: Path):
    right = (EXAMPLES / "softmax.py").read_text(encoding="utf-8")
    wrong = right.replace('other=float("-inf")', "other=0.0")
    assert wrong != right
    path = tmp_path / "softmax.py"
    path.write_text(wrong, encoding="utf-8")
    done = without_gpu("interpret", path, json.dumps(ODD_CASES["softmax"]), scratch=tmp_path / "cache")
    assert done.returncode != 0
    assert "AssertionError: wrong for normal inputs" in done.stderr


@a_quick_example
def test_every_case_compiles_for_every_architecture(path: Path, tmp_path: Path):
    done = without_gpu("compile", path, *CAPABILITIES, scratch=tmp_path)
    assert done.returncode == 0, done.stderr
    built = json.loads(done.stdout)
    assert list(built) == list(CAPABILITIES)
    assert all(path.stem.removesuffix("_training") in name for names in built.values() for name in names)
    assert all(built.values())
