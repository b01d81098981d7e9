"""What Triton has the host compiler make for the user's own file need not be made again for each version of it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.device import device_named
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.target import make_target
from kernel_lsp.source.candidate import Candidate, SourceFile

SOFTMAX = Path(__file__).parents[3] / "examples" / "triton" / "softmax.py"
LAUNCHER = "__triton_launcher.cpython-312-x86_64-linux-gnu.so"


def renewed(candidate: Candidate) -> Candidate:
    kernel = candidate.kernel
    return replace(candidate, kernel=SourceFile(kernel.path, kernel.text + "\n# another\n"), origin="user")


def ran(folder: Path) -> Path:
    """The cache of a process that launched a kernel."""
    for name, text in (("LAUNCHER", LAUNCHER), ("KERNEL", "softmax_kernel.cubin")):
        (folder / name).mkdir(parents=True)
        (folder / name / text).write_text(name)
    return folder


def test_a_version_begins_with_the_launchers_of_the_users_own_file(tmp_path):
    pool = SimpleNamespace(scratch=lambda flavour: tmp_path / flavour)
    builders = Builders(cast(Any, pool), Settings(), device_named("sm_90"))
    baseline = make_target(SOFTMAX).baseline
    builders._seed_triton_cache(baseline)
    builders.keep_launchers(ran(tmp_path / "process"))
    version = renewed(baseline)
    builders._seed_triton_cache(version)
    for candidate in (baseline, version):
        kept = builders.triton_cache(candidate)
        assert (kept / "LAUNCHER" / LAUNCHER).read_text() == "LAUNCHER"
        assert not (kept / "KERNEL").exists(), "kernels are compiled by the build, and tried by no other version"


def test_without_a_build_there_is_nothing_to_keep_them_for(tmp_path):
    pool = SimpleNamespace(scratch=lambda flavour: tmp_path / flavour)
    builders = Builders(cast(Any, pool), Settings(), device_named("sm_90"))
    builders.keep_launchers(ran(tmp_path / "process"))
    assert not (tmp_path / "build").exists()


def test_nothing_is_taken_from_a_version_that_is_built_before_the_users_own_file(tmp_path):
    pool = SimpleNamespace(scratch=lambda flavour: tmp_path / flavour)
    builders = Builders(cast(Any, pool), Settings(), device_named("sm_90"))
    baseline = make_target(SOFTMAX).baseline
    version = renewed(baseline)
    builders._seed_triton_cache(version)
    ran(builders.triton_cache(version))  # its own code put these there
    builders._seed_triton_cache(baseline)
    assert not builders.triton_cache(baseline).exists()
    builders.keep_launchers(ran(tmp_path / "process"))
    assert (builders.triton_cache(baseline) / "LAUNCHER" / LAUNCHER).exists()
