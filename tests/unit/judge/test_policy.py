"""Every threshold has a name, a unit or reason, and is hashed with the judge's own code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_lsp import policy
from kernel_lsp.config.settings import JudgeSettings
from kernel_lsp.judge.measure.digest import digest_of, policy_digest, thresholds

SOURCE = Path(policy.__file__).read_text(encoding="utf-8")


def declared() -> Iterator[tuple[str, ast.stmt]]:
    """Each threshold's name, with the statement that follows its declaration."""
    body = ast.parse(SOURCE).body
    for statement, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, following


def test_every_threshold_says_why_it_is_what_it_is() -> None:
    silent = [
        name
        for name, following in declared()
        if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant))
    ]
    assert silent == []
    assert {name for name, _ in declared()} == set(thresholds())


def test_every_threshold_is_read_somewhere() -> None:
    package = Path(policy.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    trees = [ast.parse(text) for text in texts if "policy" in text]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    read = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "policy"
    }
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "kernel_lsp.policy":
            read |= {alias.name for alias in node.names}
    assert sorted(thresholds().keys() - read) == []


def test_thresholds_are_positive_numbers_or_tables_of_them() -> None:
    signed = {"TINY_POWER"}
    for name, value in thresholds().items():
        numbers = list(value.values()) if hasattr(value, "values") else [value]
        flat = [x for number in numbers for x in (number if isinstance(number, tuple) else (number,))]
        assert all(isinstance(x, int | float) for x in flat), name
        assert name in signed or all(x > 0 for x in flat), name


def test_the_defaults_of_settings_are_those_of_the_policy() -> None:
    found = JudgeSettings()
    assert (found.delta, found.alpha, found.factor, found.budget_ms) == (
        policy.DELTA,
        policy.ALPHA,
        policy.ERROR_FACTOR,
        policy.BUDGET_MS,
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with code of the judge and code of others."""
    for name in ("judge/pipeline.py", "device/probes.cu", "source/static_check/host.py", "lsp/server.py"):
        path = tmp_path / "one" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    return tmp_path / "one"


def test_the_digest_changes_with_thresholds_and_with_code(package: Path) -> None:
    before = digest_of({"DELTA": 0.01}, package)
    assert digest_of({"DELTA": 0.02}, package) != before
    assert digest_of({"MARGIN": 0.01}, package) != before
    for name in ("judge/pipeline.py", "device/probes.cu", "source/static_check/host.py"):
        text = (package / name).read_text()
        (package / name).write_text(text + "# changed\n")
        assert digest_of({"DELTA": 0.01}, package) != before, name
        (package / name).write_text(text)
    assert digest_of({"DELTA": 0.01}, package) == before


def test_the_digest_is_of_contents_and_not_of_places(package: Path, tmp_path: Path) -> None:
    before = digest_of({"DELTA": 0.01}, package)
    (package / "lsp/server.py").write_text("# no part of the judge\n")
    package.rename(tmp_path / "two")
    assert digest_of({"DELTA": 0.01}, tmp_path / "two") == before


def test_moving_code_from_one_file_to_another_changes_the_digest(package: Path) -> None:
    before = digest_of({}, package)
    (package / "judge/pipeline.py").rename(package / "judge/session.py")
    assert digest_of({}, package) != before


def test_the_digest_of_this_program_is_short_and_kept() -> None:
    assert len(policy_digest()) == 16
    assert policy_digest() is policy_digest()
