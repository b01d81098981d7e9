"""A verdict for an editor: in one line, and as a page."""

from kernel_lsp.report.evidence import evidence_markdown
from kernel_lsp.report.titles import speedup_title
from tests.unit.report.sample_verdicts import case, evidence, faster, wrong

BEFORE = "__global__ void k(const float* x) {}\n"
AFTER = "__global__ void k(const float* __restrict__ x) {}\n"


def test_a_title_says_how_much_how_sure_on_what_and_where():
    assert speedup_title(faster()) == "1.25x faster (95 % CI 1.23-1.26), 2 cases, verified on NVIDIA H200"
    one = faster(cases=(case("n=1"),), speedup=1.02, interval=(1.011, 1.029))
    assert speedup_title(one) == "1.020x faster (95 % CI 1.011-1.029), 1 case, verified on NVIDIA H200"
    assert speedup_title(wrong()) == "WRONG"


def test_a_page_has_the_card_and_the_change():
    sources = {"baseline": BEFORE, "candidate": AFTER, "workload": "N = 1\n", "candidate_launch": "N = 2\n"}
    verdict = faster(evidence=evidence(sources=sources))
    page = evidence_markdown(verdict, verdict.id[:8])
    assert page.startswith("# BLOCK 128 -> 256: 1.25x faster (95 % CI 1.23-1.26), 2 cases, verified on NVIDIA H200\n")
    assert "\x1b" not in page
    assert "compute-sanitizer is not installed" in page  # what was not checked is said too
    change = page.split("```diff\n")[1]
    assert f"-{BEFORE}+{AFTER}" in change
    assert "-N = 1\n+N = 2\n" in change
    assert page.count("```") == 4
