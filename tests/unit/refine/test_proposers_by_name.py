"""Proposers by name: the built-in ones, one's own, and a search with them where nothing can be timed."""

import asyncio

import pytest

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.device import device_named
from kernel_lsp.errors import CannotJudgeError, ConfigurationError
from kernel_lsp.judge.target import make_target
from kernel_lsp.refine.proposers import find_proposers
from kernel_lsp.refine.run import refine_target
from kernel_lsp.store.store import open_store
from tests.softmax_kernel import write_softmax

OWN = """
from dataclasses import replace
from kernel_lsp.source.candidate import SourceFile

class Scripted:
    def __init__(self, texts, base):
        self._left = [replace(base, kernel=SourceFile(base.kernel.path, t), label=l, origin="user") for l, t in texts]
        self.told = []

    async def next(self, budget):
        taken, self._left = self._left[:budget], self._left[budget:]
        return taken

    def tell(self, candidate, feedback):
        print(candidate.label, feedback.verdict)

def propose(base, kernels, seed):
    text = base.kernel.text
    return [Scripted([
        ("fewer warps", text.replace("num_warps=4", "num_warps=2")),
        ("half of it", text.replace("numerator / tl.sum", "0.5 * numerator / tl.sum")),
        ("no Python", text.replace("tl.exp(", "tl.exp((")),
    ], base)]

NOT_A_FUNCTION = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "my_proposers.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return "my_proposers:propose"


def test_names_stand_for_proposers(own):
    assert find_proposers([own], device_named("A100"))[0].__name__ == "propose"


@pytest.mark.parametrize("name", ["no_such_module:propose", "my_proposers:missing", "my_proposers:NOT_A_FUNCTION"])
def test_a_name_that_stands_for_nothing_is_an_error_to_fix(own, name):
    with pytest.raises(ConfigurationError, match=r"refine\.proposers"):
        find_proposers([name], device_named("A100"))


def refined(tmp_path, **refine):
    settings = Settings.model_validate({"refine": refine, "paths": {"data": tmp_path, "cache": tmp_path / "cache"}})
    with open_store(tmp_path) as store:
        found = asyncio.run(refine_target(make_target(write_softmax(tmp_path)), settings, store, asyncio.Event()))
        return found, store.list_verdicts()


def test_without_a_gpu_there_is_no_search_unless_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_lsp.device.choice.find_gpus", lambda: ())
    with pytest.raises(CannotJudgeError, match="no GPU"):
        refined(tmp_path)


@pytest.mark.thorough
def test_an_untimed_search_judges_what_is_proposed_and_finds_nothing_faster(tmp_path, own, monkeypatch):
    monkeypatch.setattr("kernel_lsp.device.choice.find_gpus", lambda: ())
    found, kept = refined(tmp_path, proposers=[own], untimed=True)
    assert {t.candidate.label: t.feedback.verdict for t in found.tried} == {
        "fewer warps": "UNTIMED",
        "half of it": "WRONG",
        "no Python": "BUILD_FAILED",
    }
    assert found.best is None
    assert found.reason == (
        "nothing can be timed here, as this machine has no GPU: of 3 candidates 2 build and 1 are right"
    )
    assert len(kept) == 3
