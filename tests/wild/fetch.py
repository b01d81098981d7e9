"""Gathers the public kernels that a run judges: `python -m tests.wild.fetch FOLDER`.

Each file comes from the commit that its project names and must have the checksum that stands there. FOLDER must lie
outside of this repository: nothing of what is fetched is committed. `FOLDER/manifest.json` lists what was written.

Options: --mirrors DIR with copies of repositories, `OWNER+NAME/repo` each, which are read in place of the network;
--only PROJECT, several times for several.
"""

import argparse
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.wild.catalogue import FOLDER, Project, PublicFile, PublicFolder, projects

_ROOT = Path(__file__).parents[2]
_ADDRESS = "https://github.com/{repository}"
_SECONDS = 600.0  # for one repository


def gather(folder: Path, mirrors: Path | None, only: Sequence[str]) -> list[dict[str, str]]:
    """Write all files below a folder and return an entry for each.

    Raises:
        SystemExit: a repository cannot be had, or a file is not what the project says.
    """
    entries: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="fetch-") as scratch:
        for project in projects():
            if not only or project.name in only:
                repository = git_directory(project, mirrors, Path(scratch))
                entries += [write(project, file, repository, folder) for file in project.files]
                for part in project.folders:
                    unpack(part, git_directory(part, mirrors, Path(scratch)), folder / project.name)
                add_own(project, folder / project.name)
                for place in project.empty:
                    path = folder / project.name / place
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
                print(f"{project.name}: {len(project.files)} files of {project.repository}", flush=True)
    return entries


def unpack(part: PublicFolder, repository: Path, folder: Path) -> None:
    """Put a folder of a repository, as its commit has it, in its place below a folder.

    Raises:
        SystemExit: the repository does not have it.
    """
    above = folder / part.place
    above.mkdir(parents=True, exist_ok=True)
    packed = git(repository, "archive", f"{part.commit}:{part.path}")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(above, filter="data")


def add_own(project: Project, folder: Path) -> None:
    """Put our own files in their places, and a `pyproject.toml` with the compiler's options if there are any."""
    for name, place in project.own.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((FOLDER / project.name / name).read_bytes())
    if project.options:
        settings = f"[tool.kernel-lsp]\nbuild.options = {json.dumps(project.options)}\n"
        (folder / "pyproject.toml").write_text(settings)


def git_directory(project: Project | PublicFolder, mirrors: Path | None, scratch: Path) -> Path:
    """Return a git directory that holds the project's commit, fetching that alone where there is no mirror.

    Raises:
        SystemExit: it cannot be fetched.
    """
    if mirrors is not None:
        mirror = mirrors / project.repository.replace("/", "+") / "repo"
        if mirror.is_dir():
            return mirror
    made = scratch / project.repository.replace("/", "+")
    if made.is_dir():
        return made
    address = _ADDRESS.format(repository=project.repository)
    git(None, "init", "--quiet", "--bare", str(made))
    git(made, "fetch", "--quiet", "--depth", "1", address, project.commit)
    return made


def write(project: Project, file: PublicFile, repository: Path, folder: Path) -> dict[str, str]:
    """Write one file, or the lines of it that a run gets, and return its entry of the manifest.

    Raises:
        SystemExit: the repository does not have it, or has another text.
    """
    content = git(repository, "show", f"{project.commit}:{file.path}")
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise SystemExit(
            f"{project.repository}, {file.path} at {project.commit}: its SHA-256 is {found}, and {file.sha256} in "
            f"tests/wild/workloads/{project.name}/project.toml. Look at what has changed before you take it."
        )
    if file.lines:
        every = content.splitlines(keepends=True)
        content = b"".join(line for first, last in file.lines for line in every[first - 1 : last])
    path = folder / project.name / file.place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return {
        "repository": project.repository,
        "commit": project.commit,
        "path": file.path,
        "sha256": file.sha256,
        "written": str(path.relative_to(folder)),
        "lines": ", ".join(f"{first} to {last}" for first, last in file.lines) or "all",
    }


def git(directory: Path | None, *arguments: str) -> bytes:
    """Return what git prints.

    Raises:
        SystemExit: git is missing, fails, or takes more than ten minutes.
    """
    where = ["--git-dir", str(directory)] if directory else []
    try:
        done = subprocess.run(["git", *where, *arguments], capture_output=True, timeout=_SECONDS, check=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise SystemExit(f"git {' '.join(arguments)} failed: {said}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(f"git {' '.join(arguments)}: {error}") from None
    return done.stdout


def main() -> None:
    """Gather, and say how much it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mirrors", type=Path)
    parser.add_argument("--only", action="append", default=[])
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    if folder.is_relative_to(_ROOT):
        raise SystemExit(
            f"{folder} lies in this repository. Name a folder outside of it: nothing fetched is committed."
        )
    entries = gather(folder, asked.mirrors, asked.only)
    (folder / "manifest.json").write_text(json.dumps(entries, indent=1) + "\n")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{len(entries)} files, {size / 1e6:.1f} MB, in {folder}")


if __name__ == "__main__":
    main()
