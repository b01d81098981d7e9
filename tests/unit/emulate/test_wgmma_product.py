"""The product by `wgmma` is right where a block stays for several tiles, and each way to break it is found."""

from pathlib import Path

import pytest
from emulated import EXAMPLES, check_files, findings_of

pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

PRODUCT = (EXAMPLES / "cuda" / "wgmma_gemm.cu").read_text()
WORKLOAD = (EXAMPLES / "cuda" / "wgmma_gemm_workload.py").read_text()
# One block, so that its ring goes on from tile to tile: four tiles, of which three stand out over the edges.
ALONE = WORKLOAD.replace("    grid = min(", "    grid = 1 or min(").replace("n=120", "n=264")
FENCE = '            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n'
RELEASED = "arrive(&shared.empty[{}]);\n            }}\n        }}\n"
BROKEN = {
    "waits for the other phase": ("full[s], round & 1)", "full[s], (round & 1) ^ 1)", "KL018"),
    "a stage given back too early": ("wait_products<1>()", "wait_products<2>()", "KL061"),
    "the last product not waited for": ("        wait_products<0>();", "        wait_products<1>();", "KL066"),
    "sums stored without a fence": (FENCE, "", "KL063"),
    "a box filled while it is stored": ("wait_stored<1>()", "wait_stored<2>()", "KL061"),
    "sums put down without the swizzle": ("(piece ^ row % 8) * 8", "piece * 8", "KL020"),
    "bytes of half a stage": ("sizeof(Stage))", "sizeof(Stage) / 2)", "KL018"),
    "the wrong stage given back": (RELEASED.format("(n - 1) % STAGES"), RELEASED.format("n % STAGES"), "KL018"),
    "ends while its last box is stored": ("        wait_stored<0>();\n", "", "KL060"),
}


def written(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "wgmma_gemm_workload.py").write_text(ALONE)
    kernel = folder / "wgmma_gemm.cu"
    kernel.write_text(text)
    return kernel


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_a_block_that_stays_for_several_tiles_is_right(tmp_path: Path):
    kernel = written(tmp_path / "alone", PRODUCT)
    report = check_files(kernel)[kernel]
    assert report.ok, report.diagnostics
    assert findings_of(report) == set()


def test_each_way_to_break_it_is_found(tmp_path: Path):
    files: dict[str, Path] = {}
    for number, (name, (right, wrong, _)) in enumerate(BROKEN.items()):
        assert PRODUCT.count(right) == 1, name
        files[name] = written(tmp_path / str(number), PRODUCT.replace(right, wrong))
    reports = check_files(*files.values())
    found = {name: {one.code for one in reports[path].diagnostics} for name, path in files.items()}
    assert {name: BROKEN[name][2] in rules for name, rules in found.items()} == dict.fromkeys(BROKEN, True), found
