"""The list of trusted folders: nothing is trusted by accident."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.lsp.trust import Trust


@pytest.fixture
def trust(tmp_path):
    return Trust(tmp_path / "config/trusted.json")


@pytest.fixture
def project(tmp_path):
    (tmp_path / "project/deep").mkdir(parents=True)
    return tmp_path / "project"


def test_nothing_is_trusted_until_told(trust, project):
    assert not trust.covers(project / "a.cu")
    trust.add(project)
    assert trust.covers(project / "deep/a.cu")
    assert not trust.covers(project.parent / "project-2/a.cu")


def test_a_link_to_itself_is_trusted_as_the_folder_it_lies_in(trust, project):
    (project / "a.cu").symlink_to("a.cu")
    assert not trust.covers(project / "a.cu")
    trust.add(project)
    assert trust.covers(project / "a.cu")


def test_trust_is_kept_and_seen_by_others(trust, project):
    other = Trust(trust.file)
    assert not other.covers(project)
    trust.add(project)
    assert other.covers(project)
    trust.remove(project)
    assert not other.covers(project)


def test_a_link_into_a_project_leads_out_of_it(trust, project, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (project / "link").symlink_to(tmp_path / "elsewhere")
    trust.add(project)
    assert not trust.covers(project / "link/a.cu")
    assert not trust.covers(project / "../elsewhere/a.cu")


def test_withdrawing_covers_what_lies_below(trust, project):
    trust.add(project / "deep")
    trust.remove(project)
    assert not trust.covers(project / "deep")


def test_a_folder_within_a_trusted_one_cannot_be_withdrawn_alone(trust, project):
    trust.add(project)
    with pytest.raises(ConfigurationError, match="because it is in"):
        trust.remove(project / "deep")
    assert trust.covers(project / "deep")


def test_only_folders_are_trusted(trust, project):
    (project / "a.cu").touch()
    with pytest.raises(ConfigurationError, match="no such folder"):
        trust.add(project / "a.cu")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"folders": 3}', '{"folders": [3]}', "\udcff"])
def test_a_list_that_cannot_be_read_trusts_nothing(trust, project, text):
    trust.file.parent.mkdir()
    trust.file.write_text(text, errors="surrogateescape")
    assert trust.folders == ()
    trust.add(project)
    assert json.loads(trust.file.read_text()) == {"folders": [str(project)]}


def test_a_folder_that_cannot_be_written_is_said(trust, project):
    trust.file.parent.touch()
    with pytest.raises(ConfigurationError, match="Trust cannot be kept"):
        trust.add(project)


def test_many_at_once_lose_nothing(trust, tmp_path):
    folders = [tmp_path / f"p{i}" for i in range(20)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda folder: Trust(trust.file).add(folder), folders))
    assert set(trust.folders) == set(folders)
