from pathlib import Path

import pytest

from kernel_lsp.config.load import load_settings, options
from kernel_lsp.config.settings import Settings
from kernel_lsp.config.units import parse_duration, parse_size
from kernel_lsp.errors import ConfigurationError


@pytest.fixture
def load(tmp_path: Path):
    """Load with nothing said but what the test says."""

    def load(**given):
        given = {"start": tmp_path, "environment": {}, "user_file": tmp_path / "none.toml"} | given
        return load_settings(**given)

    return load


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_said_gives_the_defaults(load):
    settings, problems = load()
    assert settings == Settings()
    assert problems == ()


def test_every_setting_has_a_description_and_its_own_variable():
    assert all(option.field.description for option in options().values())
    assert len({option.variable for option in options().values()}) == len(options())


def test_later_places_win(load, tmp_path):
    user = write(tmp_path / "user.toml", 'arch = ["sm_80"]\n[judge]\ndelta = 0.02\nalpha = 0.02\nfactor = 4.0\n')
    write(tmp_path / "pyproject.toml", "[tool.kernel-lsp.judge]\nalpha = 0.03\nfactor = 5.0\nbudget_ms = 100\n")
    settings, _ = load(
        user_file=user,
        environment={"KERNEL_LSP_JUDGE_FACTOR": "6", "KERNEL_LSP_JUDGE_BUDGET_MS": "200", "HOME": "/"},
        overrides={"judge": {"budget_ms": 400}},
    )
    judge = settings.judge
    assert (settings.arch, judge.delta, judge.alpha, judge.factor, judge.budget_ms) == (["sm_80"], 0.02, 0.03, 6, 400)


def test_the_project_is_found_upward_past_files_without_the_table(load, tmp_path):
    write(tmp_path / "pyproject.toml", '[tool.kernel-lsp]\nrefine.budget = "5m"\n')
    write(tmp_path / "inner" / "pyproject.toml", '[project]\nname = "x"\n')
    kernel = write(tmp_path / "inner" / "deep" / "kernel.cu", "")
    assert load(start=kernel)[0].refine.budget == 300


def test_relative_folders_start_at_the_file_that_names_them(load, tmp_path):
    write(tmp_path / "pyproject.toml", '[tool.kernel-lsp.build]\ninclude_dirs = ["include", "/opt/include"]\n')
    write(tmp_path / "src" / "kernel.cu", "")
    settings, _ = load(start=tmp_path / "src")
    assert settings.build.include_dirs == [tmp_path / "include", Path("/opt/include")]


def test_lists_in_the_environment(load):
    said = {"KERNEL_LSP_ARCH": "sm_80, sm_90a", "KERNEL_LSP_BUILD_OPTIONS": "-Xptxas=-v,-O3 '-DNAME=a b'"}
    settings, _ = load(environment=said)
    assert settings.arch == ["sm_80", "sm_90a"]
    assert settings.build.options == ["-Xptxas=-v,-O3", "-DNAME=a b"]


def test_a_wrong_value_says_where_what_and_the_fix(load, tmp_path):
    project = write(tmp_path / "pyproject.toml", "[project]\n\n[tool.kernel-lsp.judge]\nalpha = 0.05\ndelta = 2\n")
    with pytest.raises(ConfigurationError) as caught:
        load()
    assert (caught.value.path, caught.value.line) == (project, 5)
    assert "judge.delta = 2" in caught.value.message
    assert "less than 0.5" in caught.value.message
    assert "1 %" in str(caught.value.fix)


def test_a_misspelt_key_is_met_with_the_nearest(load, tmp_path):
    write(tmp_path / "pyproject.toml", "[tool.kernel-lsp]\nbuild.cache-limit = 3\n")
    with pytest.raises(ConfigurationError, match=r"pyproject.toml:2: .*Did you mean `build.cache_limit`\?"):
        load()


def test_a_misspelt_variable_is_met_with_the_nearest(load):
    with pytest.raises(ConfigurationError, match="Did you mean `KERNEL_LSP_ARCH`"):
        load(environment={"KERNEL_LSP_ARC": "sm_90"})


def test_a_value_in_place_of_a_table(load):
    with pytest.raises(ConfigurationError, match=r"It is a table; write for instance `refine.budget = ...`"):
        load(overrides={"refine": 3})


def test_a_lenient_reader_keeps_what_was_said_before(load, tmp_path):
    user = write(tmp_path / "user.toml", "[judge]\ndelta = 0.03\n")
    settings, problems = load(
        user_file=user, overrides={"judge.delta": "much", "arch": ["volta"], "refine.budget": 9.0}, strict=False
    )
    assert (settings.judge.delta, settings.arch, settings.refine.budget) == (0.03, [], 9.0)
    assert [problem.message.split("`")[1].split(" ")[0] for problem in problems] == ["judge.delta", "arch"]


def test_a_file_that_is_not_toml_is_named_with_its_line(load, tmp_path):
    user = write(tmp_path / "user.toml", "arch = []\njudge = {\n")
    settings, problems = load(user_file=user, strict=False)
    assert settings == Settings()
    assert (problems[0].path, problems[0].line) == (user, 2)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1.5 min", 90), ("42", 42)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "-3s", "1h and a bit", "1h30"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="is not a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "size"), [("2GiB", 2**31), ("1.5 GB", 1_500_000_000), ("512", 512), ("0B", 0)])
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "2 gigs", "-1MB"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="is not a size such as"):
        parse_size(text)


@pytest.mark.parametrize("given", ["normal,enormous", ["normal", "enormous"]])
def test_an_unknown_input_family_is_refused_with_the_known_ones(load, given):
    with pytest.raises(ConfigurationError, match=r"`enormous` is not an input family; these are: normal, .*, weights"):
        load(overrides={"judge.families": given})


def test_known_input_families_are_taken(load):
    settings, _ = load(overrides={"judge.families": "normal, misaligned-2"})
    assert settings.judge.families == ["normal", "misaligned-2"]
