"""Tasks of a policy: of files, folders, captures and KernelBench, with variants of other sizes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import ConfigurationError, WorkloadError
from kernel_lsp.judge.target import make_target
from kernel_lsp.learn import tasks
from kernel_lsp.learn.grpo_plan import begin, require_strong
from kernel_lsp.learn.tasks import as_begun, find_tasks, remember
from kernel_lsp.learn.variations import variations
from kernel_lsp.refine.journal import kernel_key
from kernel_lsp.store.store import open_store
from kernel_lsp.workload.capture import Capture, capture_text
from tests.served_model.scale import KERNEL, WORKLOAD, write_scale
from tests.unit.learn.test_cheats_earn_nothing import RANDOM
from tests.unit.learn.test_planning_a_policy import plan

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x){more}


batch_size = 4096
dim = 1 + 1024


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
"""
TRITON = """import triton
import triton.language as tl
import torch

CASES: list = [dict(n=4096), {"n": 7}]


@triton.jit
def double(x, y, n):
    i = tl.program_id(0)
    tl.store(y + i, 2 * tl.load(x + i))


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty_like(x)
    module.double[(x.numel(),)](x, y, x.numel())
    return y
"""


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def settings(**changes):
    return load_settings(overrides={"learn.held_out": 0.0} | changes)[0]


def scale(folder: Path, cases: str = "[dict(n=40)]", factor: str = "3") -> Path:
    folder.mkdir(exist_ok=True)
    path = write_scale(folder)
    path.write_text(KERNEL.replace("3.0f", f"{factor}.0f"))
    text = WORKLOAD.replace("CASES = [dict(n=40)]", f"CASES = {cases}").replace("3 * x", f"{factor} * x")
    path.with_name("scale_workload.py").write_text(text)
    return path


def changes(folder: Path, cases: str, most: int = 9) -> list[tuple[str, str]]:
    found = variations(make_target(scale(folder, cases)), most)
    lines = [one.target.workload.source.text.splitlines() for one in found]
    return [(one.change, text[2].removeprefix("CASES = ")) for one, text in zip(found, lines, strict=True)]


def test_a_variant_has_one_entry_smaller_in_all_cases(tmp_path):
    cases = "[dict(rows=1 << 12, cols=2 * 512, axis=1), {'rows': 33, 'cols': 8}]"
    assert changes(tmp_path, cases) == [
        ("rows * 1/2", "[dict(rows=2048, cols=2 * 512, axis=1), {'rows': 16, 'cols': 8}]"),
        ("cols * 1/2", "[dict(rows=1 << 12, cols=512, axis=1), {'rows': 33, 'cols': 8}]"),
        ("rows * 3/4", "[dict(rows=3072, cols=2 * 512, axis=1), {'rows': 24, 'cols': 8}]"),
        ("cols * 3/4", "[dict(rows=1 << 12, cols=768, axis=1), {'rows': 33, 'cols': 8}]"),
    ]
    assert len(changes(tmp_path, cases, 3)) == 3


@pytest.mark.parametrize("cases", ["[dict(n=n) for n in (40, 80)]", "[dict(n=8)]", "[dict(n=40.0)]", "[dict(n=4**9)]"])
def test_what_is_not_written_out_has_no_variants(tmp_path, cases):
    assert not changes(tmp_path, cases)


def test_a_contract_of_listed_sizes_has_no_variants(tmp_path):
    path = scale(tmp_path)
    workload = path.with_name("scale_workload.py")
    workload.write_text(workload.read_text().replace("CONTRACT = dict(", "CONTRACT = dict(listed_sizes=True, "))
    assert not variations(make_target(path), 9)


def test_where_one_file_holds_kernel_and_sizes_both_are_changed(tmp_path):
    path = tmp_path / "double.py"
    path.write_text(TRITON)
    [half, more] = variations(make_target(path), 9)
    assert "CASES: list = [dict(n=2048), {" in half.target.source.text
    assert "dict(n=3072)" in more.target.workload.source.text
    assert half.target.source.text == half.target.workload.source.text


def test_a_folder_gives_its_kernels_and_says_what_is_left_out(tmp_path):
    scale(tmp_path / "a")
    scale(tmp_path / "b", factor="5")
    scale(tmp_path / "copy")
    scale(tmp_path / "none", factor="7").with_name("scale_workload.py").unlink()
    private = scale(tmp_path / "private", factor="11").parent
    (private / "pyproject.toml").write_text("[tool.kernel-lsp.learn]\ncollect = false\n")
    found = find_tasks([str(tmp_path)], settings())
    assert [one.target.source.path.parent.name for one in found.tasks] == ["a", "b"]
    assert not any(one.named for one in found.tasks)
    assert tasks.reasons(found.left_out) == {
        "of projects that opted out": 1,
        "the same as others": 1,
        "without a workload that can be used": 1,
    }
    with pytest.raises(ConfigurationError, match="keeps this project's kernels out"):
        find_tasks([str(private / "scale.cu")], settings())
    with pytest.raises(ConfigurationError, match="no kernel to learn on: 1 of projects that opted out"):
        find_tasks([str(private)], settings())


def test_kernelbench_is_a_folder_of_problems(tmp_path):
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "19_ReLU.py").write_text(PROBLEM.format(more=""))
    (level / "20_Other.py").write_text(PROBLEM.format(more=" + 1"))
    (level / "notes.txt").write_text("no problem")
    found = find_tasks([str(tmp_path)], settings(), 1)
    names = [(one.target.source.path.name, one.origin) for one in found.tasks]
    halved = "batch_size * 1/2"
    assert names == [
        ("19_ReLU.py", "found"),
        ("20_Other.py", "found"),
        ("19_ReLU.py", halved),
        ("20_Other.py", halved),
    ]
    assert "batch_size = 2048" in found.tasks[2].target.source.text
    assert found.tasks[2].kernels > found.tasks[0].kernels, "what is trained on a variant has seen the kernel"


def test_a_variant_that_is_a_held_out_kernel_is_none(tmp_path, monkeypatch):
    level = tmp_path / "level1"
    level.mkdir()
    problem = level / "19_ReLU.py"
    problem.write_text(PROBLEM.format(more=""))
    half, *_ = variations(make_target(problem), 9)
    held = kernel_key(half.target.baseline)
    monkeypatch.setattr(tasks, "is_held_out", lambda kernel, share: kernel == held)
    found = find_tasks([str(tmp_path)], settings(), 2)
    assert [one.origin for one in found.tasks] == ["found", "dim * 1/2"]
    assert tasks.reasons(found.left_out) == {"held out": 1}


def test_variants_of_a_held_out_kernel_are_none(tmp_path):
    scale(tmp_path / "a")
    with pytest.raises(ConfigurationError, match="1 held out"):
        find_tasks([str(tmp_path)], settings(**{"learn.held_out": 0.999999}), 2)


def test_captures_are_tasks_of_their_kernels(tmp_path):
    kernel = tmp_path / "double.py"
    kernel.write_text(TRITON.partition("CASES")[0] + "@triton.jit" + TRITON.partition("@triton.jit")[2])
    captures = tmp_path / "captures"
    captures.mkdir()
    for function in ("launch", "reference"):
        made = Capture("train.py", str(kernel), function, ("double",), kernel.read_text(), (), 1)
        (captures / made.file_name).write_text(capture_text(made))
    found = find_tasks([str(captures)], settings(), 2)
    assert len({one.key for one in found.tasks}) == 2, "two functions of one file"
    assert {kernel for one in found.tasks for kernel in one.kernels} == {kernel_key(found.tasks[0].target.baseline)}
    assert all(one.target.workload.captured for one in found.tasks), "captures have no variants"
    [one] = find_tasks([str(next(captures.glob("*.launch.*")))], settings()).tasks
    assert one.named
    (captures / "broken.capture.json").write_text('{"kernel_lsp_capture": 0}')
    assert len(find_tasks([str(captures)], settings()).left_out) == 1


@pytest.mark.asyncio
async def test_a_variant_is_a_task_only_if_its_workload_is_strong(tmp_path):
    """The real judge: of random inputs the workload and its variant are, of those of the other file neither."""
    weak, strong = scale(tmp_path / "weak", factor="5"), scale(tmp_path / "strong")
    strong.with_name("scale_workload.py").write_text(RANDOM)
    wanted = {"learn.strength": 0.5, "judge.families": "normal", "paths.cache": tmp_path / "cache"}
    chosen = settings(**wanted)
    planned = plan(tmp_path, str(strong), str(tmp_path / "weak"))
    found = find_tasks([str(strong), str(tmp_path / "weak")], chosen, 1)
    planned = replace(planned, tasks=tuple(found.tasks))
    with open_store(tmp_path / "data") as store:
        left = await require_strong(planned, chosen, store)
        assert [(one.target.source.path, one.origin) for one in left.tasks] == [(strong, "named"), (strong, "n * 1/2")]
        assert left.job.kernels == tuple(one.key for one in left.tasks)
        assert {one.kind for one in left.left_out} == {"with a workload that is too weak, or wrong"}
        assert weak.name in left.left_out[0].file
        begin(left)
        with pytest.raises(WorkloadError):  # the run was begun with it: it cannot go on otherwise
            await require_strong(planned, chosen, store)


def test_a_run_that_is_taken_up_has_the_tasks_that_it_was_begun_with(tmp_path):
    path = scale(tmp_path / "a", "[dict(n=40, m=64)]")
    found = find_tasks([str(path)], settings(), 2)
    assert as_begun(tmp_path, found) == found
    kept = tasks.Tasks(found.tasks[:2], [tasks.NoTask("scale.cu", "weak", "why", found.tasks[2].key)])
    remember(tmp_path, kept)
    assert as_begun(tmp_path, found) == kept
    known = json.loads((tmp_path / "tasks.json").read_text())
    assert known["tasks"][found.tasks[1].key]["origin"] == "m * 1/2"
    assert known["tasks"][found.tasks[1].key]["file"] == str(path)


def test_a_plan_knows_all_kernels_that_it_trains_on(tmp_path):
    planned = plan(tmp_path, str(scale(tmp_path / "a")))
    assert planned.seen == {kernel_key(planned.targets[0].baseline)}
