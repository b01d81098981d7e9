"""A verdict as one page for a browser."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernel_lsp.cli.main import app
from kernel_lsp.judge.timing import Trace, TracedGroup
from kernel_lsp.report.page import verdict_page
from kernel_lsp.report.page.elements import joined, tag
from kernel_lsp.report.view.verdict import Step
from kernel_lsp.store.store import open_store
from tests.unit.report.sample_verdicts import build_failed, evidence, faster, steady, wrong

EVIL = "</script><script>alert('x')</script><img src=x onerror=alert(1)>"
VOID = {"meta"}


class Page(HTMLParser):
    """Elements and text of a page; it must be well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for each, attributes in self.elements if each == name]


def traced() -> Trace:
    group = TracedGroup(kind="kernel", name="rmsnorm_kernel(float const*)", own=True, calls=8, us=232.0, streams=(7,))
    return Trace(
        case="n=1",
        timed=True,
        launches=8,
        span_us=240.0,
        own_share=0.97,
        baseline_own_share=1.0,
        claimed_us=29.0,
        groups=(group,),
        never_launched=(),
    )


def test_all_that_a_verdict_rests_on_is_in_words():
    verdict = faster(
        evidence=evidence(
            sustained=steady(),
            traces=(traced(),),
            baseline_opcodes={"FFMA": 8, "BAR": 1},
            candidate_opcodes={"FFMA": 12, "BAR": 1},
            sources={"baseline": "int a;\n", "candidate": "int b;\n", "workload": ""},
        )
    )
    page = Page(verdict_page(verdict, "3f9a2c1e", [Step(1, "first try", "WRONG", None, "the question", "the answer")]))
    for part in (
        "FASTER 1.25x 95 % CI 1.23-1.26",
        "rows=128 cols=8191 3.31 µs 3.02 µs 1.10x",
        "Candidate 80.0 µs 55.0 mJ 690 W 1,700 MHz",
        "- skipped".replace("-", "–"),
        "compute-sanitizer is not installed",
        "40 → 32",
        "FFMA 8 12 +4",
        "1. first try WRONG",
        "n=1, timed 8 240 µs 97 % 100 % 29.0 µs",
        "rmsnorm_kernel(float const*) 8 232 µs",
        "the question",
        "the answer",
        "-int a; +int b;",
        "limits · files · network",
        "8675309",
        "kernel-lsp report 3f9a2c1e --sources 3f9a2c1e",
    ):
        assert part in page.text, part
    assert "BAR" not in page.text.split("Difference")[1].split("The search")[0], "what is the same is not shown"


@pytest.mark.parametrize("verdict", [faster(), wrong(), build_failed()], ids=["faster", "wrong", "failed"])
def test_a_page_needs_nothing_from_elsewhere(verdict):
    text = verdict_page(verdict, "3f9a2c1e")
    page = Page(text)
    assert len(text.encode()) < 1_500_000
    assert not [a for _, given in page.elements for a in given if a in ("src", "href")]
    policy = next(m["content"] for m in page.named("meta") if m.get("http-equiv"))
    assert policy is not None
    allowed = re.fullmatch(r"default-src 'none'; style-src '(nonce-[\w-]{22})'; script-src '\1'", policy)
    assert allowed, policy
    data, *scripts = page.named("script")
    assert data == {"type": "application/json", "id": "plots"}
    assert {f"nonce-{given.get('nonce')}" for given in (*scripts, *page.named("style"))} == {allowed[1]}
    assert not [given for _, given in page.elements if "style" in given], "it would not be allowed"


def test_what_a_candidate_says_is_text():
    verdict = faster(
        reason=EVIL,
        evidence=evidence(
            candidate_label=EVIL, kernel_path=EVIL, build_log=EVIL, sources={"baseline": "a", "candidate": EVIL}
        ),
    )
    page = Page(verdict_page(verdict, "3f9a2c1e", [Step(1, EVIL, EVIL, None, EVIL, EVIL)]))
    assert page.named("img") == []
    assert len(page.named("script")) == 3
    assert page.text.count("onerror=alert(1)") >= 7


def test_tables_can_be_read_aloud():
    page = Page(verdict_page(faster(), "3f9a2c1e"))
    assert {head.get("scope") for head in page.named("th")} == {"row", "col"}
    plots = [given for given in page.named("div") if given.get("class") == "plot"]
    assert len(plots) == 5
    assert all(plot.get("role") == "img" and plot.get("aria-label") for plot in plots)


def test_a_failed_build_shows_its_log_and_a_wrong_answer_its_element():
    page = Page(verdict_page(build_failed(), "3f9a2c1e"))
    assert "identifier 'x40' is undefined" in page.text
    assert {"open": "open"} in page.named("details")
    assert "output 0 at [3, 8190]" in Page(verdict_page(wrong(), "3f9a2c1e")).text


def test_elements_escape_what_is_no_element():
    assert tag("p", "a < b & c", tag("b", '"'), None, class_='"x"') == (
        '<p class="&quot;x&quot;">a &lt; b &amp; c<b>"</b></p>'
    )
    assert joined("<", tag("i")) == "&lt;<i></i>"


@pytest.fixture
def recorded(tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("KERNEL_LSP_PATHS_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    verdict = faster(evidence=evidence(sources={"baseline": "a\n", "candidate": "b\n"}))
    with open_store(tmp_path / "data") as store:
        store.save_verdict(verdict.model_dump(mode="json"))
        store.append_turn("search", "d" * 64)
        lost = {"result": "SLOWER", "stage": "timed", "reason": "0.842x in a race", "speedup": 0.842}
        store.append_turn("search", "e" * 64, outcome=lost)
        store.append_turn("search", verdict.evidence.candidate_digest, prompt="faster!", verdict=verdict.id)
    return verdict.id[:8]


def test_the_command_writes_the_page(recorded):
    done = CliRunner().invoke(app, ["report", recorded, "--html"])
    assert done.exit_code == 0, done.output
    assert done.output.strip() == f"{recorded}.html"
    text = Path(f"{recorded}.html").read_text()
    assert re.search(r"1\. dddddddddddd.{0,40}not judged in full", text)
    assert re.search(r"2\. eeeeeeeeeeee.{0,40}SLOWER, not judged in full.{0,80}0\.84", text)
    assert re.search(r"3\. BLOCK 128 -&gt; 256.*?FASTER", text)
    assert "3 candidates, 1 of them judged in full" in text
    assert "faster!" in text
    assert CliRunner().invoke(app, ["report", recorded, "-o", "other.html"]).exit_code == 0
    nonce = re.compile(r"nonce[-=].{23}")
    assert nonce.sub("", Path("other.html").read_text()) == nonce.sub("", text), "but for the nonce it is the same"


def test_a_page_that_cannot_be_written_or_has_no_verdict(recorded):
    done = CliRunner().invoke(app, ["report", recorded, "-o", "no/such/folder.html"])
    assert done.exit_code != 0
    assert CliRunner().invoke(app, ["report", "--html"]).exit_code == 2
