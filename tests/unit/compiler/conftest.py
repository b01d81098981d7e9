"""What files of tests here share."""

from pathlib import Path

import pytest

from tests.host_header import with_host_header


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where builds of host code are kept, and the thin header is compiled already."""
    return with_host_header(tmp_path_factory.mktemp("kept"))
