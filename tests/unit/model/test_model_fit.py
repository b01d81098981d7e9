"""What way of serving a model fits which GPUs."""

import pytest
from kernel_model_server.fit import Card, Wish, choose

from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.model.errors import DoesNotFitError
from kernel_lsp.model.profile import ContextLength, Memory, find_profile

GIB = 2**30
KEVIN = find_profile("kevin-32b")
DRKERNEL = find_profile("drkernel-14b")


def card(total, *, free=None, number=0, arch="sm_90", name="H200"):
    gpu = Gpu(number, name, f"GPU-{number}", arch, "580", int(total * GIB))
    return Card(gpu, int((total - 1 if free is None else free) * GIB))


def chosen(profile, *cards, wish=Wish(), reserve=6, **more):  # noqa: B008
    return choose(profile.memory, profile.context, cards, judge="GPU-0", reserve=reserve * GIB, wish=wish, **more)


@pytest.mark.parametrize(
    ("total", "dtype", "context"),
    [(140, "bf16", 32768), (94, "bf16", 32768), (80, "bf16", 32768), (48, "fp8", 20480)],
)
def test_32b_on_one_gpu(total, dtype, context):
    choice = chosen(KEVIN, card(total))
    assert (choice.dtype, len(choice.cards), choice.shares) == (dtype, 1, True)
    assert choice.context >= context
    assert choice.used_bytes + 6 * GIB <= (total - 1) * GIB


def test_what_was_chosen_is_said():
    assert str(chosen(KEVIN, card(140))).startswith("bf16 on H200, which the judge uses too: ")
    assert "context of 32,768 tokens" in str(chosen(KEVIN, card(140)))


def test_24_gib_take_32b_only_in_4_bits_with_a_short_context():
    small = card(24, name="RTX 4090", arch="sm_89")
    with pytest.raises(DoesNotFitError) as caught:
        chosen(KEVIN, small)
    said = caught.value.message
    assert "23.0 GiB free on RTX 4090 (sm_89)" in said
    for dtype in ("bf16", "fp8", "4bit"):
        assert f"{dtype} with a context of 20,480 tokens needs" in said
    assert "6 GiB of it for the judge" in said
    choice = chosen(KEVIN, small, wish=Wish(context=2048), reserve=0)
    assert (choice.dtype, choice.context) == ("4bit", 2048)


def test_14b_on_24_gib():
    choice = chosen(DRKERNEL, card(24, arch="sm_86"), reserve=2)
    assert choice.dtype == "4bit", "fp8 needs sm_89"
    assert chosen(DRKERNEL, card(24, arch="sm_89"), reserve=1).dtype == "fp8"


def test_with_two_gpus_the_model_keeps_to_its_own():
    choice = chosen(KEVIN, card(80), card(80, number=1))
    assert [c.gpu.uuid for c in choice.cards] == ["GPU-1"]
    assert not choice.shares
    worse_but_alone = chosen(KEVIN, card(48), card(48, number=1))
    assert [c.gpu.uuid for c in worse_but_alone.cards] == ["GPU-1"]
    assert worse_but_alone.dtype == "fp8"


def test_several_small_gpus_take_a_part_each():
    choice = chosen(KEVIN, *(card(24, number=n, name="L4", arch="sm_89") for n in range(5)))
    assert (choice.dtype, len(choice.cards)) == ("bf16", 4)
    assert "GPU-0" not in {c.gpu.uuid for c in choice.cards}
    assert "4 x L4" in str(choice)


def test_the_judges_gpu_is_shared_where_the_others_do_not_suffice():
    choice = chosen(KEVIN, card(48), card(16, number=1))
    assert choice.shares
    assert choice.dtype == "fp8"


def test_heads_must_divide():
    cards = [card(24, number=n, arch="sm_89") for n in range(5)]
    assert len(chosen(KEVIN, *cards, heads=40).cards) == 4
    assert len(chosen(KEVIN, *cards, heads=6).cards) == 2


def test_the_user_has_the_last_word():
    assert chosen(KEVIN, card(140), wish=Wish(dtype="fp8")).dtype == "fp8"
    assert chosen(KEVIN, card(140), wish=Wish(context=65536)).context == 65536
    assert len(chosen(KEVIN, card(140), card(140, number=1), wish=Wish(gpus=2)).cards) == 2
    assert chosen(KEVIN, card(80), wish=Wish(context=131072)).dtype == "fp8"
    with pytest.raises(DoesNotFitError, match="131,072"):
        chosen(KEVIN, card(48), wish=Wish(context=131072))


def test_quantised_weights_are_served_as_they_are():
    assert chosen(KEVIN, card(140), stored="4bit").dtype == "4bit"
    with pytest.raises(DoesNotFitError):
        chosen(KEVIN, card(140), stored="4bit", wish=Wish(dtype="bf16"))


def test_other_machines_of_a_ray_cluster_hold_layers():
    choice = chosen(KEVIN, card(32), card(32, number=1), wish=Wish(gpus=2, ray=4))
    assert (choice.dtype, len(choice.cards), choice.pipeline) == ("bf16", 2, 2)


def test_no_gpu_and_too_old_a_gpu_are_said():
    with pytest.raises(CannotJudgeError, match="no GPU"):
        chosen(KEVIN)
    with pytest.raises(DoesNotFitError, match="no way of serving it is possible on sm_75"):
        chosen(KEVIN, card(24, arch="sm_75"))


def test_a_context_is_never_longer_than_the_model_reaches():
    memory = Memory(weights_gib={"bf16": 1.0, "fp8": 0.5, "4bit": 0.3}, cache_bytes_per_token=1024)
    choice = choose(memory, ContextLength(wished=9000, least=100, most=4096), [card(140)], judge=None, reserve=0)
    assert choice.context == 4096
    assert choice.cache_bytes == 4096 * 8 * 1024
