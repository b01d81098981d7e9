"""A user's sentences end every further prompt, and the plan of a second opinion is told while it is carried out."""

from types import SimpleNamespace

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.judge.target import make_target
from kernel_lsp.lsp.services import job
from kernel_lsp.refine.dialogue.task import Briefing
from kernel_lsp.refine.model_session import ModelSession
from kernel_lsp.refine.progress import Talking
from kernel_lsp.report.units import talking_text
from tests.served_model.scale import write_scale
from tests.served_model.talking import MODEL, asked, fake_server, in_turn

FIRST, SECOND = "keep the accumulation in fp32", "use cp.async"
PLAN = "Bottleneck: launches\nMethod: larger blocks\nPlan: use 64 threads"


@pytest.mark.asyncio
async def test_each_sentence_stands_in_the_next_prompt_and_in_all_after_it(tmp_path):
    talking, wishes = Talking(turn=2, turns=8, tokens=100, rate=50.0), [FIRST]
    async with fake_server() as server:
        in_turn(server, "No code today.", PLAN, "No code today.")
        settings, _ = load_settings(overrides=MODEL | {"model.endpoint": f"unix:{server.socket}"})
        target = SimpleNamespace(target=make_target(write_scale(tmp_path)), settings=settings)
        async with ModelSession(target, settings, talking, lambda: None, wishes) as session:
            briefing = Briefing("NVIDIA H200")
            await session.ask([], briefing, seed=1)
            wishes.append(SECOND)
            advice = await session.opinion(briefing, seed=2)
            await session.ask([], briefing, seed=3, advice=advice)
        first, _, second = (asked(server, number)[-1] for number in range(3))
    assert first.endswith(f"\n- {FIRST}")
    assert SECOND not in first
    assert second.endswith(f"Plan: use 64 threads\n\n{second[second.index('The author') :]}")
    assert second.endswith(f"\n- {FIRST}\n- {SECOND}")
    assert talking.plan == "use 64 threads"


def test_the_plan_is_told_beside_the_tokens_and_cut_where_it_is_long():
    assert talking_text(2, 8, 1234, 56.4, "use 64 threads").endswith(" · 56 tokens/s · plan: use 64 threads")
    assert talking_text(2, 8, 1234, 56.4, "x" * 200).endswith("x...")
    assert talking_text(0, 8, 0, 0.0, "use 64 threads") == ""


@pytest.mark.asyncio
async def test_a_search_under_way_takes_further_wishes():
    async with job.opened() as handle:
        assert await handle({"work": "wish", "text": SECOND}, lambda _: None) is None
