"""What a model is sent, word for word; what later turns keep and drop; templates of the user's own."""

from pathlib import Path

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import WEAK, Mismatch, Outcome, Stage
from kernel_lsp.model.errors import UnsuitedProfileError
from kernel_lsp.model.profile import find_profile
from kernel_lsp.refine.dialogue import feedback as feedback_module
from kernel_lsp.refine.dialogue.answer import read_answer
from kernel_lsp.refine.dialogue.conversation import PastTurn, messages, tell
from kernel_lsp.refine.dialogue.feedback import kind_of
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import Briefing, make_task
from kernel_lsp.refine.proposer import Facts, Feedback
from tests.served_model.scale import RIGHT, write_scale

PINNED = Path(__file__).parents[2] / "fixtures/prompts"
KEVIN = find_profile("kevin-32b")
H200 = Briefing("NVIDIA H200")
LOG = 'scale.cu:3: error: identifier "z" is undefined\n    if (i < n) y[i] = 3.0f * z[i];'
MISMATCH = Mismatch(case="n=40", family="normal", output=0, index=(0,), actual="1", expected="0", count=40, total=40)
OUTCOMES = {
    "unparsed": "The answer holds no fenced code block. Put the complete code into one block fenced by ```.",
    "uncompiled": Feedback(Stage.BUILD, Outcome.BUILD_FAILED, message="it does not build", log=LOG),
    "crashed": Feedback(Stage.RUN, Outcome.RUN_FAILED, message="case n=40: it reads 4 bytes beyond the end of x"),
    "incorrect": Feedback(Stage.CORRECT, Outcome.WRONG, message="y is wrong from index [0]", mismatch=MISMATCH),
    "correct": Feedback(Stage.TIMED, Outcome.FASTER, 0.8, (0.79, 0.81), "1.25x", Facts(16, 0, 0, 1.0)),
}


async def few(_) -> int:
    return 100


@pytest.fixture
def target(tmp_path):
    return make_target(write_scale(tmp_path))


def shown(said) -> str:
    return "\n".join(f"[{message['role']}]\n{message['content']}\n" for message in said)


def talk_about(target, profile=KEVIN, own=None):
    prompts = Prompts(profile.talk.format, own)
    return prompts, make_task(target, profile, prompts)


@pytest.mark.asyncio
@pytest.mark.parametrize("outcome", [None, *OUTCOMES])
async def test_prompts_of_kevin_are_pinned(target, outcome):
    prompts, task = talk_about(target)
    answer = read_answer(f"<think>\nThree times.\n</think>\n\n{RIGHT}")
    attempts = [] if outcome is None else [PastTurn(answer, tell(prompts, OUTCOMES[outcome]))]
    said = shown(await messages(task, KEVIN.talk, H200, attempts, few))
    assert said == (PINNED / f"kevin-32b-{outcome or 'first'}.txt").read_text()
    assert "Three times." not in said, "reasoning is never sent back"


@pytest.mark.asyncio
async def test_whole_oldest_turns_are_dropped_at_the_budget(target):
    _, task = talk_about(target)
    attempts = [PastTurn(read_answer(f"answer {n}"), f"feedback {n}") for n in range(6)]
    seen = []

    async def count(said) -> int:
        seen.append(len(said))
        return 1000 + 1500 * (len(said) // 2)  # the first message, and each turn that is kept

    said = await messages(task, KEVIN.talk, H200, attempts, count)
    assert KEVIN.talk.history_tokens == 8192
    kept = [message["content"] for message in said[1:]]
    assert kept == [f"{word} {n}" for n in (2, 3, 4, 5) for word in ("answer", "feedback")]
    assert seen == [13, 11, 9]


@pytest.mark.asyncio
async def test_the_last_turn_is_never_dropped(target):
    _, task = talk_about(target)
    attempts = [PastTurn(read_answer(f"answer {n}"), f"feedback {n}") for n in range(3)]

    async def endless(_) -> int:
        return 10**6

    said = await messages(task, KEVIN.talk, H200, attempts, endless)
    assert [m["content"] for m in said[1:]] == ["answer 2", "feedback 2"]


@pytest.mark.asyncio
async def test_general_models_get_files_facts_and_what_was_tried(target):
    general = find_profile("general")
    prompts, task = talk_about(target, general)
    briefing = Briefing(
        "NVIDIA H200",
        "NVIDIA H200 (sm_90), measured bandwidth 4,000 GB/s to copy, 4,500 GB/s to read",
        ("scale: 16 registers a thread, occupancy 100%",),
        ("n=40: 2.1 us",),
        ("block 32 -> 64: wrong",),
    )
    attempts = [PastTurn(read_answer("no"), tell(prompts, OUTCOMES["correct"]))]
    said = shown(await messages(task, general.talk, briefing, attempts, few))
    assert said == (PINNED / "general-correct.txt").read_text()


@pytest.mark.asyncio
async def test_a_template_of_the_users_own_takes_the_place_of_ours(target, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "first.j2").write_text("Published wording for the {{ gpu }}:\n{{ architecture }}")
    settings, _ = load_settings(overrides={"model.templates": str(own)})
    prompts, task = talk_about(target, own=settings.model.templates)
    attempts = [PastTurn(read_answer("x"), tell(prompts, OUTCOMES["unparsed"]))]
    first, _, feedback = await messages(task, KEVIN.talk, H200, attempts, few)
    assert first["content"].startswith("Published wording for the NVIDIA H200:\nimport torch\n")
    assert "Here are your previous attempts" not in first["content"]
    assert feedback["content"].startswith("Your previous answer failed to be parsed."), "the others stay"
    (own / "system.j2").write_text("You write kernels.")
    (own / "example_summary.txt").write_text("That is how.")
    prompts, task = talk_about(target, own=settings.model.templates)
    assert task.system() == "You write kernels.\n"
    assert prompts.example()["summary"] == "That is how."
    assert "add_kernel" in prompts.example()["answer"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("fine\n{% if %}\nfine", 2, "Expected an expression"),
        ("fine\nfine\n{{ speed }}", 3, "'speed' is undefined"),
        ("{{ 1 / 0 }}", 1, "division by zero"),
        ("\n{% include 'none.j2' %}", 2, "none.j2"),
        ("{{ ''.__class__.__mro__ }}", 1, "unsafe"),
    ],
)
def test_a_faulty_template_is_named_with_its_line(tmp_path, text, line, words):
    (tmp_path / "feedback.j2").write_text(text)
    with pytest.raises(ConfigurationError, match=words) as caught:
        tell(Prompts("kernelbench-cuda", tmp_path), "no code")
    assert caught.value.path == tmp_path / "feedback.j2"
    assert caught.value.line == line


def test_a_profile_that_does_not_write_this_language_is_refused(target):
    with pytest.raises(UnsuitedProfileError, match="write Triton, and this kernel is CUDA"):
        talk_about(target, find_profile("drkernel-8b"))


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_model_is_told_of_a_failure_as_one(outcome: Outcome) -> None:
    known = not outcome.is_failure or outcome in feedback_module._KINDS
    assert known, f"{outcome}, a failure, has no kind in `_KINDS` of refine/dialogue/feedback.py"
    assert (kind_of(Feedback(Stage.CORRECT, outcome)) == "correct") is not outcome.is_failure


@pytest.mark.parametrize("template", ["edits", "kernelbench-cuda", "kernelbench-triton"])
def test_what_was_not_judged_is_not_called_right(template: str) -> None:
    why = "it could not be judged: the subject process ended during `Ready`"
    for feedback in (
        Feedback(Stage.RUN, Outcome.UNTIMED, message=why),
        Feedback(Stage.CORRECT, Outcome.UNTIMED, message=WEAK),
    ):
        said = tell(Prompts(template), feedback)
        assert "It is not known whether" in said
        assert feedback.message in said
        assert "was correct." not in said
        assert "It is right." not in said
