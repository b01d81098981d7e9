"""What the documentation says of the code, held against the code."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import kernel_model_server
import pytest

from kernel_lsp import __version__
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.config.settings import RefineSettings
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine.language import refine_part
from kernel_lsp.refine.strategies import STRATEGIES
from kernel_lsp.runner.language import runner_part
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import part_of, source_part
from kernel_lsp.workload.language import workload_part
from tests.unit.documentation import protocol_page, settings_page
from tests.unit.documentation.statements import statements_of

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "kernel_lsp"
README = (ROOT / "README.md").read_text()
ROOMS_PAGE = (ROOT / "docs/architecture.md").read_text()
ROOMS = re.findall(r"^\| `(\w+)/` \|", ROOMS_PAGE, re.MULTILINE)
DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
PAGES = sorted({path.name for path in ROOT.glob("*.md")}) + DOCS
OTHER_PAGES = [
    *("examples/README.md", "examples/cuda/README.md", "examples/editors/README.md"),
    *("extension/README.md", "tests/bench/README.md"),
]
MOST_WORDS = {"README.md": 1500, "docs/architecture.md": 2500}
SERVER = sorted((ROOT / "server/kernel_model_server").glob("*.py"))
PARTS = sorted((PACKAGE / "languages").glob("*/*.py"))
PLACES = {"kernel_lsp", "server", "tests", "examples", "extension", "docs", *ROOMS}


def test_the_page_of_settings_is_as_they_are_declared():
    page = settings_page.PAGE.read_text()
    assert settings_page.with_settings(page) == page, "run: python -m tests.unit.documentation.settings_page"


def test_every_room_is_described_and_there_is_no_other():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(ROOMS) == folders


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_one_way(room):
    upward = {f"kernel_lsp.{above}" for above in ROOMS[: ROOMS.index(room)]}
    found = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in (PACKAGE / room).rglob("*.py")
        for module in imported(path)
        if ".".join(module.split(".")[:2]) in upward
    ]
    assert found == []


@pytest.mark.parametrize("path", SERVER, ids=lambda path: path.stem)
def test_the_model_server_stands_on_the_room_of_models(path: Path):
    below = {"kernel_lsp.errors", *(f"kernel_lsp.{room}" for room in ROOMS[ROOMS.index("model") :])}
    if path.stem == "commands":
        below |= {"kernel_lsp.cli.console", "kernel_lsp.cli.options", "kernel_lsp.report"}
    ours = [module for module in imported(path) if module.split(".")[0] == "kernel_lsp"]
    assert [module for module in ours if not {module, ".".join(module.split(".")[:2])} & below] == []


def test_nothing_imports_the_model_server():
    imports = {path: imported(path) for path in PACKAGE.rglob("*.py")}
    assert [path for path, names in imports.items() if any("kernel_model_server" in name for name in names)] == []


def test_the_model_server_is_of_the_same_version():
    assert kernel_model_server.__version__ == __version__
    needed = tomllib.loads((ROOT / "server/pyproject.toml").read_text())["project"]["dependencies"]
    assert f"kernel-lsp=={__version__}" in needed


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.parent.name}-{part.stem}")
def test_a_part_of_a_language_imports_what_the_room_that_asks_may(part: Path):
    room = {"mutations": "source", "__init__": "device", "compiling": "runner"}.get(part.stem, part.stem)
    above = {f"kernel_lsp.{name}" for name in ROOMS[: ROOMS.index(room)]}
    others = [module for module in imported(part) if not module.startswith(f"kernel_lsp.languages.{part.parent.name}.")]
    assert [module for module in others if ".".join(module.split(".")[:2]) in above] == []


@pytest.mark.parametrize("language", list(Language))
def test_every_language_answers_every_room(language: Language):
    answered = [source_part, compiler_part, runner_part, workload_part, refine_part]
    assert [asked.__name__ for asked in answered if asked(language) is None] == []
    assert callable(part_of(language, "mutations"))
    assert {path.name for path in (PACKAGE / "languages").glob("*/") if path.name != "__pycache__"} == set(Language)


@pytest.mark.parametrize("name", [path.name for path in PACKAGE.glob("*.py")])
def test_what_lies_below_all_rooms_uses_none_of_them(name: str):
    assert [module for module in imported(PACKAGE / name) if module.startswith("kernel_lsp")] == []


def test_the_parent_process_stays_light():
    modules = [f"kernel_lsp.cli.{path.stem}" for path in (PACKAGE / "cli").glob("*.py") if path.stem != "__init__"]
    heavy = "{'torch', 'triton', 'numpy', 'cuda', 'vllm', 'ray'}"
    code = f"import sys, importlib; [importlib.import_module(m) for m in {modules}]; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr


def test_readme_installs_and_tests_as_ci_does():
    ci = (ROOT / ".ci/run").read_text()
    for command in ("-e '.[gpu,dev", "-e server", ".venv/bin/kernel-lsp check examples/", ".venv/bin/pytest -q"):
        assert command in ci
        assert command in README


@pytest.mark.parametrize("name", PAGES + OTHER_PAGES)
def test_links_lead_somewhere(name):
    page = ROOT / name
    for target in re.findall(r"\]\((?!https://)([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("name", DOCS)
def test_links_of_the_site_stay_in_it(name):
    targets = re.findall(r"\]\(([^)\s#]+)", prose(ROOT / name))
    assert [target for target in targets if target.startswith(("..", "/"))] == []


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_page_names_exist(name):
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
    named = re.findall(r"`([\w.-]+/[\w./-]*)`", text)
    ours = [path for path in named if path.split("/")[0] in PLACES and not re.search("NAME|ROOM|LANGUAGE", path)]
    assert [path for path in ours if not ((ROOT / path).exists() or (PACKAGE / path).exists())] == []


@pytest.mark.parametrize("name", MOST_WORDS)
def test_a_page_stays_short(name):
    assert len((ROOT / name).read_text().split()) <= MOST_WORDS[name]


def test_every_example_is_in_the_table_of_examples():
    linked = set(re.findall(r"\]\(([\w/.]+)\)", (ROOT / "examples/README.md").read_text()))
    workloads = {"kernelbench/bias_gelu.py", "kernelbench/mean_square.py", "kernelbench/row_softmax.py"}
    examples = {
        path.relative_to(ROOT / "examples").as_posix()
        for pattern in ("*/*.cu", "*/*.py")
        for path in (ROOT / "examples").glob(pattern)
        if not path.stem.endswith("_workload")
    }
    assert examples - workloads <= linked


def test_the_page_of_the_protocol_is_as_its_records_are_declared():
    page = protocol_page.PAGE.read_text()
    assert protocol_page.with_tables(page) == page, "run: python -m tests.unit.documentation.protocol_page"


def test_the_extension_has_the_records_as_they_are_declared():
    written = protocol_page.TYPESCRIPT["TARGET"].read_text()
    assert protocol_page.TYPESCRIPT["protocol"]() == written, "run: python extension/scripts/protocol.py"


@pytest.mark.parametrize("name", ["README.md", "docs/verdicts.md"])
def test_every_verdict_is_described(name: str):
    heads = re.findall(r"^\| ([A-Z_, ]+) \|", (ROOT / name).read_text(), re.MULTILINE)
    described = {verdict for head in heads for verdict in head.split(", ")}
    assert described == set(Outcome), f"the table of verdicts in {name}"


def test_every_strategy_that_can_be_set_is_there_and_described():
    names = get_args(RefineSettings.model_fields["strategy"].annotation)
    assert set(names) == set(STRATEGIES), "the `Literal` in config/settings.py and `STRATEGIES` in refine/strategies"
    rows = re.findall(r"^\| `([\w-]+)` \| ", (ROOT / "docs/models.md").read_text(), re.MULTILINE)
    assert set(names) <= set(rows), "the table in docs/models.md"


def test_every_page_is_in_the_menu_of_the_site():
    listed = re.findall(r": (\w[\w-]*\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(f"docs/{page}" for page in listed) == DOCS


def prose(page: Path) -> str:
    """Return the text of a page without its code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


def imported(path: Path) -> list[str]:
    """Full names of the modules that a file imports, at its top or inside functions."""
    found: list[str] = []
    for node in statements_of(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found
