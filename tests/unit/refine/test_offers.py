"""Offers: what the store holds, seen as edits of the text as it is now."""

import pytest

from kernel_lsp.errors import SourceError
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine.offers import Offer, find_offers
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.text import apply_edits
from kernel_lsp.store.store import open_store
from tests.unit.report.sample_verdicts import evidence, faster

KERNEL = """__device__ float half_of(float x) { return 0.5f * x; }

__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = half_of(x[i]);
}

__global__ void other(float* y) { y[0] = 1.0f; }
"""
VARIANT = KERNEL.replace("const float* x, float* y", "const float* __restrict__ x, float* __restrict__ y")
WORKLOAD = """import torch

CASES = [dict(n=64)]


def inputs(n):
    return torch.randn(n, device="cuda")


def reference(x):
    return 0.5 * x


def launch(module, x):
    y = torch.empty_like(x)
    module.scale[((x.numel() + 255) // 256,), (256,)](x, y, x.numel())
    return y
"""
LAUNCH = WORKLOAD.replace("256", "128").replace("255", "127")


@pytest.fixture
def files(tmp_path):
    kernel, workload = tmp_path / "scale.cu", tmp_path / "scale_workload.py"
    kernel.write_text(KERNEL)
    workload.write_text(WORKLOAD)
    return kernel, workload


def stored(
    store, files, variant=VARIANT, launch=None, speedup=1.4, name="a" * 20, outcome=Outcome.FASTER, workload=None
):
    target = make_target(files[0])
    candidate = target.version(variant, f"variant {name[0]}", "rewrite:restrict", launch)
    sources = {"baseline": target.source.text, "candidate": variant, "workload": WORKLOAD}
    rests_on = evidence(
        baseline_digest=target.baseline.digest,
        candidate_digest=candidate.digest,
        kernel_path=str(files[0]),
        workload_path=str(workload or files[1]),
        sources=sources | ({"candidate_launch": launch} if launch else {}),
    )
    verdict = faster(id=name, speedup=speedup, verdict=outcome, evidence=rests_on)
    store.save_verdict(verdict.model_dump(mode="json"))
    return verdict


def offers(store, files):
    return find_offers(store, make_target(files[0]).baseline)


def test_a_new_session_finds_what_an_older_one_found_best_first(files, tmp_path):
    with open_store(tmp_path) as store:
        stored(store, files, speedup=1.2, name="a" * 20)
        stored(store, files, VARIANT + "// b\n", speedup=1.5, name="b" * 20)
        stored(store, files, VARIANT + "// c\n", name="c" * 20, outcome=Outcome.SLOWER)
    with open_store(tmp_path) as store:
        assert [o.verdict.id[0] for o in offers(store, files)] == ["b", "a"]


def test_a_file_that_was_moved_is_known_by_its_text(files, tmp_path):
    with open_store(tmp_path) as store:
        stored(store, files)
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        moved = [file.rename(folder / file.name) for file in files]
        assert len(offers(store, moved)) == 1


def test_a_variant_judged_twice_counts_as_it_was_judged_last(files, tmp_path):
    with open_store(tmp_path) as store:
        stored(store, files, speedup=1.9, name="a" * 20)
        stored(store, files, speedup=1.1, name="b" * 20)
        assert [o.verdict.speedup for o in offers(store, files)] == [1.1]


def test_the_edits_make_the_variant(files, tmp_path):
    with open_store(tmp_path) as store:
        offer = Offer(stored(store, files))
    [changed] = offer.place(SourceFile(files[0], KERNEL), SourceFile(files[1], WORKLOAD))
    assert apply_edits(KERNEL, changed.edits) == VARIANT
    assert sum(len(edit.text) for edit in changed.edits) < 40  # and nothing else is touched


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("__device__", "// a comment above\n\n__device__"),
        ("y[0] = 1.0f", "y[0] = 2.0f"),  # another kernel
        ("__global__ void other", "__global__ void third() {}\n\n__global__ void other"),
    ],
)
def test_what_was_judged_may_have_moved(files, tmp_path, old, new):
    with open_store(tmp_path) as store:
        offer = Offer(stored(store, files))
    now = KERNEL.replace(old, new)
    assert offer.may_fit(now)
    [changed] = offer.place(SourceFile(files[0], now), SourceFile(files[1], WORKLOAD))
    assert apply_edits(now, changed.edits) == VARIANT.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ("i < n", "i <= n", False),
        ("0.5f", "0.25f", True),  # what the kernel calls: seen when it is placed
        ("float* y, int n", "float* y, long n", False),
    ],
)
def test_what_was_judged_may_not_have_changed(files, tmp_path, old, new, fits):
    with open_store(tmp_path) as store:
        offer = Offer(stored(store, files))
    now = KERNEL.replace(old, new)
    assert offer.may_fit(now) is fits
    with pytest.raises(SourceError, match="older version"):
        offer.place(SourceFile(files[0], now), SourceFile(files[1], WORKLOAD))


def test_another_workload_is_another_question(files, tmp_path):
    with open_store(tmp_path) as store:
        offer = Offer(stored(store, files))
    with pytest.raises(SourceError, match="older version"):
        offer.place(SourceFile(files[0], KERNEL), SourceFile(files[1], WORKLOAD.replace("n=64", "n=65")))


def test_a_variant_with_another_launch_edits_both_files(files, tmp_path):
    with open_store(tmp_path) as store:
        offer = Offer(stored(store, files, launch=LAUNCH))
    noted = WORKLOAD.replace("import torch", "# A note.\nimport torch")
    kernel, workload = offer.place(SourceFile(files[0], KERNEL), SourceFile(files[1], noted))
    assert apply_edits(KERNEL, kernel.edits) == VARIANT
    assert apply_edits(noted, workload.edits) == LAUNCH.replace("import torch", "# A note.\nimport torch")


def test_what_was_applied_is_offered_no_more(files, tmp_path):
    with open_store(tmp_path) as store:
        offer = Offer(stored(store, files))
        files[0].write_text(VARIANT)
        assert offers(store, files) == ()
    assert offer.is_applied("// more\n" + VARIANT)
    assert not offer.is_applied(KERNEL)


def test_a_verdict_that_could_not_be_stored_is_offered_all_the_same(files, tmp_path):
    with open_store(tmp_path / "one") as store, open_store(tmp_path / "two") as empty:
        verdict = stored(store, files)
        [offer] = find_offers(empty, make_target(files[0]).baseline, unsaved=[verdict])
    assert offer.verdict == verdict


def test_what_is_wrong_with_one_workload_is_no_offer_for_its_speed_with_another(files, tmp_path):
    other = tmp_path / "scale_odd_workload.py"
    with open_store(tmp_path) as store:
        stored(store, files, name="b" * 20, outcome=Outcome.WRONG, workload=other)
        stored(store, files)
        assert not offers(store, files), "judged WRONG before"
        stored(store, files, name="c" * 20, outcome=Outcome.SLOWER, workload=other)
        assert [o.verdict.id[0] for o in offers(store, files)] == ["a"], "right with both by now, faster with one"
        failing = stored(store, files, name="d" * 20, outcome=Outcome.RUN_FAILED, workload=other)
        assert not offers(store, files)
        assert not find_offers(store, make_target(files[0]).baseline, {}, [failing])


def test_a_variant_that_was_faster_and_is_not_any_more_is_no_offer(files, tmp_path):
    with open_store(tmp_path) as store:
        stored(store, files)
        assert offers(store, files)
        stored(store, files, name="b" * 20, outcome=Outcome.SAME)
        assert not offers(store, files)
