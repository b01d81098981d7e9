"""The files that a verdict's evidence keeps, written out again, and the commands that repeat the verdict with them."""

import shlex
from pathlib import Path

from kernel_lsp.errors import SourceError
from kernel_lsp.judge.verdict import Evidence


def repeat_commands(evidence: Evidence, name: str) -> tuple[str, str]:
    """The command that writes the files of the verdict called `name` to a folder, and the one that judges them."""
    kernel = Path(evidence.kernel_path).name
    sides = [f"{name}/{side}/{kernel}" for side in ("baseline", "candidate")]
    return f"kernel-lsp report {name} --sources {name}", f"kernel-lsp judge {shlex.join(sides)}"


def write_sources(evidence: Evidence, folder: Path) -> tuple[Path, ...]:
    """Write both versions to `folder/baseline` and `folder/candidate`, and return the files.

    A workload of its own is named after the kernel file, whatever it was called, so that it is found there.

    Raises:
        SourceError: a file holds something else already, or cannot be written.
    """
    kernel, sources = Path(evidence.kernel_path), evidence.sources
    workload = f"{kernel.stem}_workload.py"
    texts = {folder / "baseline" / kernel.name: sources["baseline"]}
    if evidence.workload_path != evidence.kernel_path:
        texts[folder / "baseline" / workload] = sources.get("baseline_launch", sources["workload"])
    texts[folder / "candidate" / kernel.name] = sources["candidate"]
    if "candidate_launch" in sources:
        texts[folder / "candidate" / workload] = sources["candidate_launch"]
    for path, text in texts.items():
        _write(path, text)
    return tuple(texts)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(text.encode())
    except FileExistsError:
        if path.is_dir() or path.read_bytes() != text.encode():
            raise SourceError("there is another file of that name", path, fix="Name an empty folder.") from None
    except OSError as error:
        raise SourceError(f"the file cannot be written: {error.strerror}", path, fix="Name another folder.") from None
