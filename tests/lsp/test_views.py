"""What richer clients ask for in a real server process: kernels, variants, machine code, opcodes, the state."""

import json
import os
import shutil

import pytest
import pytest_asyncio

from tests.lsp.job_session import EVERYTHING, ROOT, editor, store_offer
from tests.softmax_kernel import write_softmax

pytestmark = pytest.mark.asyncio(loop_scope="module")

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory):
    """A folder with a Triton kernel that has two variants, a CUDA kernel and a module beside it, and what has none."""
    folder = tmp_path_factory.mktemp("views")
    kernel = write_softmax(folder, 50, 1000)
    text = kernel.read_text()
    store_offer(folder, kernel, text.replace("num_warps=4", "num_warps=2"))
    store_offer(folder, kernel, text.replace("num_warps=4", "num_warps=8"), label="num_warps 4 -> 8", speedup=1.1)
    for name in ("cuda/saxpy.cu", "cuda/saxpy_workload.py", "kernelbench/mean_square.py"):
        shutil.copy(ROOT / "examples" / name, folder)
    (folder / "plain.py").write_text("import triton\n")
    os.mkfifo(folder / "pipe.cu")
    os.mkfifo(folder / "pipe_workload.py")
    (folder / "venv").mkdir()
    shutil.copy(kernel, folder / "venv/softmax.py")
    async with editor(folder, environment=NO_GPU) as session:
        yield session


def file(uri):
    return {"textDocument": {"uri": uri}}


async def test_the_state_names_the_version_the_gpu_and_who_proposes(session):
    found = await session.request("status", {})
    assert (found["gpu"], found["model"]) == (None, None)
    assert found["proposers"] == ["rewriter", "tuner"]
    assert found["version"][0].isdigit()


async def test_machine_code_is_told_apart_by_line_and_by_role(session):
    uri = (session.folder / "saxpy.cu").as_uri()
    [kernel] = (await session.request("machineCode", file(uri)))["kernels"]
    assert (kernel["arch"], kernel["name"]) == ("sm_90", "saxpy")
    lines = (session.folder / "saxpy.cu").read_text().splitlines()
    loads = [one for one in kernel["instructions"] if one["opcode"].startswith("LDG")]
    assert loads
    assert {one["role"] for one in loads} == {"global memory"}
    assert all("__ldcs" in (line := lines[one["line"] - 1]) or "[tail]" in line for one in loads)
    assert kernel["instructions"][0]["role"] is None
    assert max(one["live"] for one in kernel["instructions"]) > 4
    [made] = kernel["intermediate"]
    assert made["name"] == "PTX"
    ptx = [(one["line"], one["text"]) for one in made["lines"]]
    assert any("__ldcs" in lines[line - 1] for line, text in ptx if line and "ld.global.cs" in text)
    assert [text.split()[0] for line, text in ptx if line is None][:2] == [".visible", ".param"]


async def test_the_largest_instance_of_a_kernel_comes_first(session):
    kernels = (await session.request("machineCode", file((session.folder / "softmax.py").as_uri())))["kernels"]
    peaks = [max(one["live"] for one in kernel["instructions"]) for kernel in kernels]
    assert len(set(peaks)) > 1
    assert peaks == sorted(peaks, reverse=True)
    assert [[one["name"] for one in kernel["intermediate"]] for kernel in kernels] == [["TTGIR", "PTX"]] * len(kernels)
    lines = (session.folder / "softmax.py").read_text().splitlines()
    ttgir = kernels[0]["intermediate"][0]["lines"]
    loads = [one["line"] for one in ttgir if " tt.load " in one["text"]]
    assert loads
    assert all("tl.load" in lines[line - 1] for line in loads)


async def test_kernels_of_the_folder_with_what_is_known_of_each(session):
    uri = session.open(session.folder / "saxpy.cu", language="cuda")
    await session.until(lambda: session.refreshed)
    await session.request("machineCode", file(uri))  # it is compiled then
    found = await session.request("kernels", {})
    assert found["complete"]
    files = {one["uri"].rpartition("/")[2]: one for one in found["files"]}
    assert list(files) == ["mean_square.py", "saxpy.cu", "softmax.py"]
    module = files["mean_square.py"]
    lines = (session.folder / "mean_square.py").read_text().splitlines()
    assert lines[module["module"]].startswith("class Model(")
    assert (module["kernels"], files["saxpy.cu"]["module"]) == ([], None)
    [saxpy], [softmax] = files["saxpy.cu"]["kernels"], files["softmax.py"]["kernels"]
    assert saxpy["facts"]["registers"] > 4
    assert saxpy["drift"] == []
    assert (saxpy["best"], saxpy["variants"]) == (None, 0)
    assert (softmax["best"]["label"], softmax["best"]["interval"], softmax["variants"]) == (
        "num_warps 4 -> 2",
        [1.231, 1.262],
        2,
    )
    assert files["softmax.py"]["last"]["outcome"] == "FASTER"
    lines = (session.folder / "softmax.py").read_text().splitlines()
    assert "def softmax_kernel" in lines[softmax["line"]]


async def test_files_of_which_nothing_is_known_are_listed_with_the_reason(tmp_path):
    triton, cuda = "import triton\n@triton.jit\ndef k(x):\n    pass\n", "__global__ void k() {}\n"
    (tmp_path / "latin.py").write_bytes(f"# für\n{triton}".encode("latin-1"))
    (tmp_path / "wide.py").write_bytes(triton.encode("utf-16"))
    (tmp_path / "wide.cu").write_bytes(cuda.encode("utf-16"))
    (tmp_path / "large.py").write_text(triton + "# 3 MiB\n" * (3 << 17))
    (tmp_path / "huge.cu").write_text(cuda + "// 9 MiB\n" * (9 << 17))
    (tmp_path / "latin_plain.py").write_bytes("# für niemanden\n".encode("latin-1"))
    (tmp_path / "large_plain.py").write_text("# 3 MiB\n" * (3 << 17))
    async with editor(tmp_path, environment=NO_GPU) as session:
        session.open(tmp_path / "large_plain.py")
        found = (await session.request("kernels", {}))["files"]
    assert {one["uri"].rpartition("/")[2]: one["problem"] for one in found} == {
        "huge.cu": "This text is too large: more than 2 MiB.",
        "large.py": "This text is too large: more than 2 MiB.",
        "latin.py": "Byte 0xfc is not UTF-8. Save the file in UTF-8.",
        "wide.cu": "Byte 0xff is not UTF-8. Save the file in UTF-8.",
        "wide.py": "Byte 0xff is not UTF-8. Save the file in UTF-8.",
    }
    assert [one["kernels"] for one in found] == [[]] * 5


async def test_what_got_worse_since_the_baseline_is_said_of_its_kernel(session):
    folder = session.folder
    (folder / ".kernel-lsp").mkdir()
    recorded = {"code": None, "registers": 8, "spill_bytes": 0, "occupancy": 1.0}
    baseline = {"version": 1, "files": {"saxpy.cu": {"sm_90": {"kernels": {"saxpy": recorded}}}}}
    (folder / ".kernel-lsp/baseline.json").write_text(json.dumps(baseline))
    try:
        await session.request("machineCode", file((folder / "saxpy.cu").as_uri()))
        files = (await session.request("kernels", {}))["files"]
    finally:
        shutil.rmtree(folder / ".kernel-lsp")
    [kernel] = next(one for one in files if one["uri"].endswith("saxpy.cu"))["kernels"]
    assert [said for said in kernel["drift"] if "8 are recorded" in said]


async def test_variants_come_best_first_and_with_their_texts(session):
    uri = (session.folder / "softmax.py").as_uri()
    text = (session.folder / "softmax.py").read_text()
    best, other = (await session.request("variants", file(uri)))["variants"]
    assert [best["fits"], other["fits"]] == [True, True]
    assert best["title"].startswith("1.25x faster (95 % CI 1.23-1.26)")
    shown = await session.request("variant", file(uri) | {"verdict": other["verdict"]})
    assert shown["label"] == "num_warps 4 -> 8"
    assert shown["files"] == [{"uri": uri, "text": text.replace("num_warps=4", "num_warps=8")}]


async def test_a_variant_of_an_older_text_is_listed_but_not_shown(session):
    path = session.folder / "softmax.py"
    uri = session.open(path)
    session.edit(uri, path.read_text().replace("tl.exp(x", "tl.exp2(x"))
    [best, _] = (await session.request("variants", file(uri)))["variants"]
    assert best["fits"] is False
    with pytest.raises(Exception, match="older version of the kernel"):
        await session.request("variant", file(uri) | {"verdict": best["verdict"]})
    with pytest.raises(Exception, match="no such variant"):
        await session.request("variant", file(uri) | {"verdict": "none"})
    session.edit(uri, path.read_text())


async def test_opcodes_of_both_sides_of_a_verdict(session):
    uri = (session.folder / "softmax.py").as_uri()
    [best, _] = (await session.request("variants", file(uri)))["variants"]
    found = await session.request("opcodes", file(uri) | {"verdict": best["verdict"]})
    assert found["arch"] == "sm_90"
    [kernel] = found["kernels"]
    assert kernel["name"] == "softmax_kernel"
    assert kernel["baseline"]["MUFU"] > 0
    assert kernel["candidate"] != kernel["baseline"]
    assert found["section"].startswith('<section id="instructions"><h2>Instructions</h2><p>softmax_kernel on sm_90: ')


async def test_nothing_is_compiled_where_nobody_is_trusted(tmp_path):
    kernel = write_softmax(tmp_path)
    async with editor(tmp_path, environment=NO_GPU, trusted=False) as session:
        [listed] = (await session.request("kernels", {}))["files"]
        assert listed["trusted"] is False
        assert listed["kernels"][0]["facts"] is None
        with pytest.raises(Exception, match="do not trust"):
            await session.request("machineCode", file(kernel.as_uri()))


async def test_who_hears_nothing_of_jobs_is_told_of_their_end(tmp_path):
    kernel = write_softmax(tmp_path)
    kernel.write_text(kernel.read_text().replace("tl.exp(", "tl.exq("))
    capabilities = {name: given for name, given in EVERYTHING.items() if name != "experimental"}
    async with editor(tmp_path, environment=NO_GPU, capabilities=capabilities) as session:
        await session.command("check", session.open(kernel))
        await session.until(lambda: [said for said in session.said if said.startswith("Checking softmax.py: ")])
