"""Files that travel to a lane: used where they are, written out where they are not, and named as on the driver's."""

import json

import pytest

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.pool import files
from kernel_lsp.pool.files import packed, unpacked


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "parts").mkdir(parents=True)
    (folder / "net.py").write_text("import torch, helper\nfrom parts.more import x\n")
    (folder / "helper.py").write_text("import net\n")
    (folder / "parts/more.py").write_text("x = 'é'\n")
    (folder / "other.py").write_text("")
    return folder


def test_a_file_travels_with_the_modules_beside_it(project, monkeypatch):
    monkeypatch.chdir(project.parent)
    names = [file.name for file in packed([(project / "net.py").relative_to(project.parent)])]
    assert sorted(names) == ["project/helper.py", "project/net.py", "project/parts/more.py"]


def test_what_is_here_is_used_here(project, tmp_path):
    found = unpacked(packed([project / "net.py"]), tmp_path / "scratch")
    request = json.dumps({"path": str(project / "net.py")})
    assert found.request(request) == request == found.answer(request)
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize("change", ["gone", "other text"])
def test_what_is_not_here_is_written_out_and_called_as_before(project, tmp_path, monkeypatch, change):
    monkeypatch.chdir(project)
    sent = packed([(project / "net.py").relative_to(project)])
    text = (project / "net.py").read_text()
    (project / "helper.py").unlink() if change == "gone" else (project / "helper.py").write_text("lies = 1")
    found = unpacked(sent, tmp_path / "scratch")
    request = json.loads(found.request(json.dumps({"path": "net.py", "text": "see net.py"})))
    assert request["text"] == "see net.py"
    assert request["path"] == f"{tmp_path}/scratch{project}/net.py"
    for path, kept in ((request["path"], text), (f"{tmp_path}/scratch{project}/helper.py", "import net\n")):
        with open(path) as file:  # noqa: PTH123 - a path as a lane has it
            assert file.read() == kept
    said = json.dumps({"log": f"{request['path']}:3: error; in {tmp_path}/scratch{project}/parts"})
    assert json.loads(found.answer(said)) == {"log": f"net.py:3: error; in {project}/parts"}


def test_too_much_is_refused_by_name(project, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 20)
    with pytest.raises(ConfigurationError) as error:
        packed([project / "net.py"])
    assert error.value.path == project / "net.py"
