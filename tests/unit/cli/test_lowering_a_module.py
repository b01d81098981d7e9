"""`kernel-lsp refine` on a plain PyTorch module, with a model that answers as it is told."""

import asyncio
import os

import pytest

from kernel_lsp.cli.apply import apply_changes
from kernel_lsp.errors import SourceError
from kernel_lsp.refine.run import FileChange
from kernel_lsp.report.diff import unified_diff
from tests.forked_commands import forked
from tests.served_model.module import PROBLEM, RIGHT, TRITON, code_of, write_answer, write_module
from tests.served_model.talking import answered, fake_server

pytestmark = pytest.mark.asyncio


async def kernel_lsp(folder, *arguments, **settings):
    """Exit code and what was said; settings as environment variables."""
    environment = os.environ | {
        "KERNEL_LSP_PATHS_DATA": str(folder / "home/data"),
        "KERNEL_LSP_PATHS_CACHE": str(folder / "home/cache"),
        "KERNEL_LSP_JUDGE_FAMILIES": "normal",
        "KERNEL_LSP_REFINE_UNTIMED": "true",
        "KERNEL_LSP_REFINE_TRAJECTORIES": "1",
        "KERNEL_LSP_REFINE_TURNS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "200",
    }
    environment |= {f"KERNEL_LSP_{name}": str(value) for name, value in settings.items()}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *forked(*arguments), cwd=folder, env=environment, stdout=pipe, stderr=pipe
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode, " ".join((out + err).decode().split())


@pytest.mark.thorough
async def test_what_is_right_but_untimed_is_told_and_not_written(tmp_path):
    write_module(tmp_path)
    async with fake_server() as server:
        server.reply = lambda _: answered(TRITON)
        model = {"MODEL_ENDPOINT": f"unix:{server.socket}", "MODEL_NAME": "tiny", "MODEL_PROFILE": "general"}
        code, said = await kernel_lsp(tmp_path, "refine", "scale.py", "--write", "triton", "--apply", **model)
    assert code == 0
    assert "nothing can be timed here, as this machine has no GPU: of 1 candidates 1 build and 1 are right" in said
    assert "One program for 64 elements UNTIMED" in said
    assert not (tmp_path / "scale_triton.py").exists()
    assert (tmp_path / "scale.py").read_text() == PROBLEM


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (("scale.py",), {}, "No model server is running on this machine."),
        (("scale.py", "--strategy", "tuner-only"), {}, "Only a model can write a kernel for a module"),
        (("scale.py", "--write", "triton"), {"MODEL_PROFILE": "kevin-32b"}, "write CUDA, and Triton is asked for"),
        (("scale.py", "--write", "cuda", "--apply"), {"MODEL_PROFILE": "general"}, "This file already exists."),
        (
            ("scale_cuda.py", "--write", "cuda"),
            {},
            "--write cuda is for a plain PyTorch module; this file has kernels.",
        ),
        (("scale.py", "--write", "fortran"), {}, "refine.write"),
        (("net.py",), {}, "This module needs `get_inputs` to be run"),
    ],
)
async def test_what_stands_in_the_way_is_said_at_once(tmp_path, arguments, settings, words):
    write_answer(tmp_path)
    (tmp_path / "net.py").write_text(PROBLEM.replace("def get_inputs", "def inputs_for"))
    if settings:
        settings = settings | {"MODEL_ENDPOINT": "unix:/nowhere", "MODEL_NAME": "tiny"}
    code, said = await kernel_lsp(tmp_path, "refine", *arguments, **settings)
    assert code == 2
    assert words in said


async def test_a_new_file_takes_the_place_of_none(tmp_path):
    made = FileChange(tmp_path / "scale_cuda.py", None, code_of(RIGHT))
    apply_changes([made])
    assert made.path.read_text() == code_of(RIGHT)
    made.path.write_text("mine")
    with pytest.raises(SourceError, match="This file already exists, so it was left alone"):
        apply_changes([made])
    assert made.path.read_text() == "mine"
    assert unified_diff(made.path, None, "a\n").startswith(f"--- /dev/null\n+++ b/{made.path}\n@@ -0,0 +1 @@\n+a\n")
