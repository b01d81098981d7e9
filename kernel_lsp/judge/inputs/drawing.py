"""Has the oracle draw inputs; the harness keeps what is known of them, and all follow from its seed."""

from dataclasses import replace

from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.draw import PLAIN, TOUCHED, WEIGHTS, Draw
from kernel_lsp.runner.messages.oracle import InputSizes, LayOut, Prepare, RehearseReference, Touch, Vary
from kernel_lsp.runner.messages.oracle_answers import Made, Varied


async def draw(harness: Harness, case: int, family: str, number: int = 0) -> Draw:
    """Return the inputs of a case in a family; `number` selects a variant, equal arguments give equal inputs."""
    key = f"{case}/{family}/{number}"
    if key not in harness.draws:
        made = await harness.oracle(Prepare(key=key, case=case, family=family, seed=harness.seed_of(key)))
        harness.draws[key] = _drawn(harness, key, case, family, made)
    return harness.draws[key]


async def rehearse_reference(harness: Harness) -> Draw:
    """Return plain inputs of the smallest decisive case, once the reference has run on them."""
    case, _ = await smallest_case(harness)
    smallest = await draw(harness, case, PLAIN)
    await harness.oracle(RehearseReference(key=smallest.key))
    return smallest


async def smallest_case(harness: Harness) -> tuple[int, int]:
    """Return the decisive case with the smallest inputs, and the bytes that these take."""
    sizes = await harness.oracle(InputSizes())
    case = min(harness.workload.decisive, key=lambda case: sizes[case])
    return case, sizes[case]


async def fresh(harness: Harness, like: Draw, seed: int, family: str = "") -> Draw:
    """Return the inputs that `Renew` draws with this seed; their errors are compared with those on `like`.

    Those of another `family` have the same shapes and numbers where it changes values of tensors alone.
    """
    key = f"{like.key}/fresh/{family}"
    family = family or fresh_family(harness, like)
    made = await harness.oracle(Prepare(key=key, case=like.case, family=family, seed=seed, like=like.key))
    return _drawn(harness, key, like.case, family, made)


def fresh_family(harness: Harness, like: Draw) -> str:
    """Return the family to draw anew for each timed launch: the one with other weights where there are weights."""
    return WEIGHTS if WEIGHTS in {draw.family for draw in harness.draws.values()} else like.family


def _drawn(harness: Harness, key: str, case: int, family: str, made: Made) -> Draw:
    changed = harness.workload.weights if family == WEIGHTS or harness.workload.renews_weights else ()
    return Draw(key, case, family, made.arguments, made.nbytes, made.input_bytes, changed)


async def lay_out(harness: Harness, draw: Draw, family: str) -> Draw:
    """Return the same values in the memory layout of a family that changes nothing but layout."""
    key = f"{draw.key}/{family}"
    if key not in harness.draws:
        made = await harness.oracle(LayOut(key=key, base=draw.key, family=family))
        harness.draws[key] = _drawn(harness, key, draw.case, family, made)
    return harness.draws[key]


async def vary(harness: Harness, draw: Draw, argument: int, first: int = 0) -> tuple[Draw | None, Varied]:
    """Return the same inputs with one argument changed, and the oracle's report on the change.

    The draw is None where no other value of the argument, from number `first` on, changes the answer; the report says
    why.
    """
    name = harness.workload.arguments[argument]
    usual = f"{draw.key}/{argument}"
    key = f"{usual}/{first}" if first else usual
    request = Vary(key=key, base=draw.key, argument=argument, seed=harness.seed_of(usual), first=first)
    found = await harness.oracle(request)
    if found.made is None or not found.matters:
        return None, found
    varied = _drawn(harness, key, draw.case, f"other `{name}`", found.made)
    changed = (*draw.changed_weights, *((name,) if name in harness.workload.weights else ()))
    harness.draws[key] = replace(varied, changed_weights=changed)
    return harness.draws[key], found


async def touch(harness: Harness, draw: Draw) -> Draw:
    """Return the same inputs with fresh values in a few places, weights included; only the latest draw is kept."""
    key = f"{draw.key}/touched"
    made = await harness.oracle(Touch(key=key, base=draw.key, seed=harness.seed_of(f"{key}/{next(harness.numbers)}")))
    return replace(_drawn(harness, key, draw.case, TOUCHED, made), changed_weights=harness.workload.weights)
