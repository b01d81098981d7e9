"""What files of tests here share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the compiled thin header, which takes longest to make, is kept for all who build with it."""
    return tmp_path_factory.mktemp("kept")
