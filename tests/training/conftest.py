"""What trainings share: to import what makes their tiny model takes longer than to make it."""

from pathlib import Path

import pytest

from tests.training.test_fine_tuning import made


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("model"), "whole")
