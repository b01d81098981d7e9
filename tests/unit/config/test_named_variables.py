"""Variables of the environment that a user's code is to see are named one by one, or by how they begin."""

import pytest
from pydantic import ValidationError

from kernel_lsp.config.settings import RunnerSettings
from kernel_lsp.config.variables import named_variables


def test_names_and_beginnings_of_names(monkeypatch: pytest.MonkeyPatch):
    for name in ("FLA_MODE", "FLA_LEVEL", "FLAG", "LIGER_IMPL", "LIGER_IMPL_2"):
        monkeypatch.setenv(name, name.lower())
    chosen = RunnerSettings.model_validate({"environment": "FLA_*, LIGER_IMPL"}).environment
    assert named_variables(chosen) == {"FLA_MODE": "fla_mode", "FLA_LEVEL": "fla_level", "LIGER_IMPL": "liger_impl"}
    assert named_variables(()) == {}


@pytest.mark.parametrize("name", ["*", "A*B", "", "?", "[A-Z]*"])
def test_nobody_names_all_of_them(name: str):
    with pytest.raises(ValidationError):
        RunnerSettings.model_validate({"environment": [name]})
