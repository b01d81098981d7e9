"""Every way to get a workload wrong is told in a sentence, at the user's own file and line."""

import inspect
import linecache
import re
import sys
from pathlib import Path

import pytest

from kernel_lsp.errors import WorkloadError
from kernel_lsp.workload.contract import Contract, Promise
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.load import bind_launch, load_workload
from kernel_lsp.workload.workload import as_outputs, describe_case, make_inputs

torch = pytest.importorskip("torch")
CASES = "CASES = [dict(n=4), dict(n=8)]\n"
INPUTS = "def inputs(n):\n    return n, 2.0\n"
REFERENCE = "def reference(x, scale):\n    return x\n"
LAUNCH = "def launch(module, x, scale):\n    return x\n"
GOOD = CASES + INPUTS + REFERENCE + LAUNCH


@pytest.fixture(autouse=True)
def _leave_the_interpreter_as_it_was(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    for name, module in tuple(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    for name in [name for name in linecache.cache if name.startswith(str(tmp_path))]:
        del linecache.cache[name]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "softmax_workload.py"


def refusal(text: str, path: Path) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        load_workload(text, path)
    assert caught.value.path == path
    return caught.value


def line_of(text: str, fragment: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if fragment in line)


def test_a_workload_is_loaded_with_all_its_parts(path):
    extras = (
        "CONTRACT = dict(contiguous=True, aligned=16, mutates=['x'], finite=True, multiples=dict(n=4))\n"
        "TOLERANCE = dict(atol=1e-3)\nNONDETERMINISTIC = True\n"
    )
    loaded = load_workload(GOOD + extras, path)
    assert loaded.cases == ({"n": 4}, {"n": 8})
    assert loaded.argument_names == ("x", "scale")
    assert loaded.contract == Contract(contiguous=True, aligned=16, mutates=("x",), finite=True, multiples={"n": 4})
    assert loaded.tolerance == {"atol": 1e-3}
    assert loaded.nondeterministic
    assert make_inputs(loaded, loaded.cases[1]) == (8, 2.0)


def test_what_a_contract_says_of_values(path):
    text = GOOD + "CONTRACT = dict(fixed=['scale'], lower_triangular=('x',), range=dict(x=(0, None)))\n"
    contract = load_workload(text, path).contract
    assert contract.promise("x") == Promise(lower_triangular=True, least=0)
    assert contract.promise("scale").said == "fixed"
    error = refusal(GOOD + "CONTRACT = dict(fixed=['scal'])\n", path)
    assert (error.line, error.fix) == (line_of(text, "CONTRACT"), "Did you mean `scale`? It takes x, scale.")


def test_contract_tolerance_and_launch_may_be_left_out(path):
    loaded = load_workload(CASES + INPUTS + REFERENCE, path)
    assert loaded.launch is None
    assert loaded.tolerance is None
    assert loaded.contract == Contract()
    assert not loaded.nondeterministic


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CASES + REFERENCE, "does not define `inputs`"),
        (CASES + INPUTS, "does not define `reference`"),
        (CASES + "inputs = 3\n" + REFERENCE, "`inputs` is a int, not a function"),
        (CASES + INPUTS + "reference = 'softmax'\n", "`reference` is a str, not a function"),
        (CASES + INPUTS + REFERENCE + "launch = 1\n", "`launch` is a int, not a function"),
        (INPUTS + REFERENCE, "CASES must be a list of at least one dict"),
        ("CASES = []\n" + INPUTS + REFERENCE, "CASES must be a list of at least one dict"),
        ("CASES = dict(n=4)\n" + INPUTS + REFERENCE, "CASES must be a list of at least one dict"),
        ("CASES = [dict(n=4), 8]\n" + INPUTS + REFERENCE, r"CASES\[1\] is not a dict"),
        ("CASES = [{1: 4}]\n" + INPUTS + REFERENCE, r"CASES\[0\] is not a dict"),
        (GOOD + "TOLERANCE = 1e-3\n", "TOLERANCE must be a dict"),
        (GOOD + "TOLERANCE = dict(absolute=1e-3)\n", "TOLERANCE must be a dict"),
        (GOOD + "TOLERANCE = dict(atol='small')\n", "TOLERANCE must be a dict"),
        (GOOD + "TOLERANCE = dict(atol=-1.0)\n", "TOLERANCE must be a dict"),
        (GOOD + "TOLERANCE = dict(rtol=float('nan'))\n", "TOLERANCE must be a dict"),
        (GOOD + "CONTRACT = True\n", "CONTRACT must be a dict"),
        (GOOD + "CONTRACT = dict(alignment=16)\n", "CONTRACT has no `alignment`: keys are among contiguous, aligned"),
        (GOOD + "CONTRACT = dict(mutates=['y'])\n", "CONTRACT's `mutates` names `y`, which `reference` does not take"),
        (GOOD + "CONTRACT = dict(mutates='scale')\n", "CONTRACT's `mutates` must be a list of names"),
        (GOOD + "CONTRACT = dict(mutates=3)\n", "CONTRACT's `mutates` must be a list of names"),
        (GOOD + "CONTRACT = dict(fixd=['x'])\n", "CONTRACT has no `fixd`"),
        (GOOD + "CONTRACT = dict(sorted='x')\n", "CONTRACT's `sorted` must be a list of names"),
        (GOOD + "CONTRACT = dict(fixed=['y'])\n", "CONTRACT's `fixed` names `y`, which `reference` does not take"),
        (GOOD + "CONTRACT = dict(range=(0, 1))\n", "CONTRACT's `range` must be a dict of inputs"),
        (GOOD + "CONTRACT = dict(range=dict(x=1))\n", "CONTRACT's `range` of `x` is 1, not a lowest and a highest"),
        (GOOD + "CONTRACT = dict(range=dict(x=(2, 1)))\n", r"CONTRACT's `range` of `x` is \(2, 1\), not a lowest"),
        (GOOD + "CONTRACT = dict(range=dict(y=(0, 1)))\n", "CONTRACT's `range` names `y`, which `reference` does not"),
        (GOOD + "CONTRACT = dict(multiples=4)\n", "CONTRACT's `multiples` must be a dict of entries of CASES"),
        (GOOD + "CONTRACT = dict(multiples=dict(m=4))\n", "CONTRACT's `multiples` names `m`, which no case has"),
        (GOOD + "CONTRACT = dict(multiples=dict(n=0))\n", "CONTRACT's `multiples` of `n` is 0, not a whole number"),
        (
            GOOD + "CONTRACT = dict(multiples=dict(n=8))\n",
            "CONTRACT says that `n` is a multiple of 8, but a ",
        ),
        (GOOD + "CONTRACT = dict(aligned='16 bytes')\n", "CONTRACT's `aligned` must be a number of bytes"),
        (GOOD + "CONTRACT = dict(aligned=-16)\n", "CONTRACT's `aligned` must be a number of bytes"),
    ],
)
def test_a_part_that_is_missing_or_malformed_is_named(path, text, says):
    error = refusal(text, path)
    assert re.search(says, error.message), error.message


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ("def inputs(rows):\n    return rows\n", "case 0 (n=4) does not fit `inputs`: missing a required argument"),
        ("def inputs():\n    return 1\n", "case 0 (n=4) does not fit `inputs`: got an unexpected keyword argument"),
        ("def inputs(n, m):\n    return n\n", "case 0 (n=4) does not fit `inputs`: missing a required argument: 'm'"),
    ],
)
def test_cases_that_do_not_fit_inputs_are_reported_at_inputs(path, inputs, says):
    text = CASES + REFERENCE + inputs
    error = refusal(text, path)
    assert error.message.startswith(says)
    assert error.line == line_of(text, "def inputs")


def test_only_the_case_that_does_not_fit_is_named(path):
    error = refusal("CASES = [dict(n=4), dict(m=8)]\n" + INPUTS + REFERENCE, path)
    assert error.message.startswith("case 1 (m=8) does not fit `inputs`")


@pytest.mark.parametrize("launch", ["def launch(x, scale):\n    ...\n", "def launch(module, x, scale, n):\n    ...\n"])
def test_a_launch_that_does_not_take_what_the_reference_takes_is_reported_at_its_line(path, launch):
    text = CASES + INPUTS + REFERENCE + launch
    error = refusal(text, path)
    assert error.message.startswith("`launch` takes ")
    assert error.line == line_of(text, "def launch")
    assert error.fix is not None
    assert "module first" in error.fix


@pytest.mark.parametrize(
    ("parameters", "unnamed"), [("*tensors", "*tensors"), ("x, *more", "*more"), ("x, **options", "**options")]
)
def test_a_reference_must_name_its_parameters(path, parameters, unnamed):
    text = CASES + INPUTS + f"def reference({parameters}):\n    ...\n"
    error = refusal(text, path)
    assert error.message == f"`reference` takes {unnamed}"
    assert error.line == line_of(text, "def reference")
    assert error.fix == "Name each parameter: reports speak of inputs by these names."


@pytest.mark.parametrize("name", ["inputs", "reference", "launch"])
def test_a_builtin_without_a_signature_is_refused(path, name):
    error = refusal(f"import torch\n{GOOD}{name} = torch.softmax\n", path)
    assert error.message == f"the parameters of `{name}` cannot be told"
    assert error.fix == f"Write `def {name}(...)` around it."


def test_what_inputs_returns_must_fit_the_reference(path):
    text = CASES + "def inputs(n):\n    return n, n, n\n" + REFERENCE
    loaded = load_workload(text, path)
    with pytest.raises(WorkloadError, match="what `inputs` returns does not fit `reference`") as caught:
        make_inputs(loaded, loaded.cases[0])
    assert caught.value.line == line_of(text, "def reference")


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("None", "a NoneType at position 0 for case n=4"),
        ("(n, b'text')", "a bytes at position 1 for case n=4"),
        ("dict(x=n)", "a dict at position 0 for case n=4"),
        ("[n, [1, 2]]", "a list at position 1 for case n=4"),
    ],
)
def test_inputs_of_the_wrong_kind_are_named_by_position_and_case(path, returned, says):
    text = CASES + f"def inputs(n):\n    return {returned}\n" + REFERENCE
    loaded = load_workload(text, path)
    with pytest.raises(WorkloadError) as caught:
        make_inputs(loaded, loaded.cases[0])
    assert caught.value.message == f"`inputs` returned {says}"
    assert (caught.value.path, caught.value.line) == (path, line_of(text, "def inputs"))


def test_inputs_that_raise_are_reported_at_the_line_in_the_users_file(path):
    text = CASES + "def inputs(n):\n    m = n - 4\n    return int('x' * m) // m, 2.0\n" + REFERENCE
    loaded = load_workload(text, path)
    with pytest.raises(WorkloadError) as caught:
        make_inputs(loaded, loaded.cases[0])
    assert (
        caught.value.message == "`inputs` raised for case n=4: ValueError: invalid literal for int() with base 10: ''"
    )
    assert (caught.value.path, caught.value.line) == (path, line_of(text, "int("))


def test_the_deepest_line_of_the_users_own_file_is_blamed_and_not_one_of_a_library(path):
    text = (
        "import json\n" + CASES + "def helper(n):\n    return json.loads('{' * n)\n"
        "def inputs(n):\n    return helper(n), 2.0\n" + REFERENCE
    )
    loaded = load_workload(text, path)
    with pytest.raises(WorkloadError, match="JSONDecodeError") as caught:
        make_inputs(loaded, loaded.cases[0])
    assert caught.value.line == line_of(text, "json.loads")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("import not_a_module", "ModuleNotFoundError: No module named 'not_a_module'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit", "SystemExit"),
        ("assert False", "AssertionError"),
    ],
)
def test_a_module_that_raises_when_imported_is_reported_at_that_line(path, statement, says):
    error = refusal(f"# first line\n{statement}\n" + GOOD, path)
    assert error.message == f"raised while it was imported: {says}"
    assert error.line == 2


def test_a_syntax_error_is_reported_at_its_line(path):
    error = refusal(GOOD + "def f(:\n", path)
    assert error.message.startswith("raised while it was imported: SyntaxError")
    assert error.line == len(GOOD.splitlines()) + 1


def test_a_syntax_error_in_an_imported_file_is_reported_at_the_import(path):
    (path.parent / "broken_shapes.py").write_text("\n\n\n\n\n\nx = (\n")
    error = refusal("import broken_shapes\n" + GOOD, path)
    assert "SyntaxError" in error.message
    assert error.line == 1


def test_a_null_byte_is_reported_and_not_a_crash(path):
    assert "null bytes" in refusal(GOOD + "\0", path).message


def test_outputs_must_be_tensors(path):
    x = torch.zeros(2)
    assert as_outputs(path, x, "reference") == (x,)
    assert as_outputs(path, [x, x], "reference") == (x, x)
    with pytest.raises(WorkloadError, match="`launch` returned a float at position 1, not a tensor") as caught:
        as_outputs(path, (x, 1.0), "launch")
    assert caught.value.fix == "Return the output tensor, or a tuple of output tensors."
    with pytest.raises(WorkloadError, match="`reference` returned a NoneType at position 0"):
        as_outputs(path, None, "reference")


def test_cases_are_described_as_a_person_would_write_them():
    assert describe_case({"rows": 4096, "cols": 8191}) == "rows=4096, cols=8191"
    assert describe_case({}) == "(no parameters)"


def test_the_text_under_judgement_is_run_and_not_the_file_on_disk(path):
    path.write_text("raise RuntimeError('the file on disk was run')\n")
    text = "# a line\n# another\n" + GOOD
    loaded = load_workload(text, path)
    assert inspect.getsource(loaded.reference) == REFERENCE
    assert inspect.getsourcelines(loaded.reference)[1] == line_of(text, "def reference")
    assert loaded.reference.__code__.co_filename == str(path)


def test_a_second_version_of_the_same_file_shows_its_own_source(path):
    first = load_module("def f():\n    return 1\n", path)
    second = load_module("\n\ndef f():\n    return 2\n", path)
    assert (first.f(), second.f()) == (1, 2)
    assert inspect.getsource(second.f) == "def f():\n    return 2\n"


def test_a_workload_imports_files_beside_it(path):
    (path.parent / "shapes_beside_it.py").write_text("SIZES = [dict(n=16)]\n")
    text = GOOD.replace(CASES, "from shapes_beside_it import SIZES\nCASES = SIZES\n")
    assert load_workload(text, path).cases == ({"n": 16},)


def test_a_kernel_file_already_loaded_is_what_its_workload_imports(path):
    load_module("BLOCK = 256\n", path.with_name("softmax_under_judgement.py"))
    workload = load_module("from softmax_under_judgement import BLOCK\n", path)
    assert workload.BLOCK == 256


def test_a_file_named_like_a_library_does_not_take_its_place(path):
    import copy

    module = load_module(
        "def deepcopy(x):\n    raise AssertionError\nclass Thing:\n    pass\n", path.with_name("copy.py")
    )
    assert sys.modules["copy"] is copy
    assert sys.modules[module.Thing.__module__] is module


def test_dataclasses_can_be_defined_in_a_loaded_file(path):
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Shape:\n    n: int = 3\n"
    )
    assert load_module(text, path).Shape().n == 3


def test_the_launch_of_the_workload_file_is_given_the_module(path):
    module = load_module("SIZE = 7\n", path.with_name("kernel_with_size.py"))
    launch = bind_launch(module, path, "def launch(module, x):\n    return module.SIZE + x\n", path)
    assert launch(1) == 8


def test_without_launch_the_only_public_function_is_called(path):
    text = (
        GOOD.replace(LAUNCH, "")
        + "from os.path import join\ndef _helper():\n    ...\ndef softmax(x):\n    return x + 1\n"
    )
    assert bind_launch(load_module(text, path), path)(1) == 2


@pytest.mark.parametrize(("functions", "named"), [("", "none"), ("def a(): ...\ndef b(): ...\n", "`a`, `b`")])
def test_without_launch_one_public_function_is_needed(path, functions, named):
    with pytest.raises(WorkloadError) as caught:
        bind_launch(load_module(functions, path), path)
    assert f"(it has {named})" in caught.value.message
    assert caught.value.path == path
