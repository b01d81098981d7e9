"""Trials of mbarriers: a random history of one barrier for each thread, of which counts and phases are read."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.bench.ptx_trials.trial import Array, Trial, module, stores, words

THREADS = 128
_STEPS = 12
_MOST_ARRIVALS = 7
_MOST_BYTES = 1000
_DOES, _STATE, _EVEN, _ODD = 1, 2, 4, 8  # flags of a step: takes part, asks by state, by parity 0, by parity 1


@dataclass(frozen=True, slots=True)
class _Operation:
    """One change of a barrier.

    Attributes:
        opcode: without `.shared::cta.b64`.
        counts: whether the amount is a number of arrivals.
        arrives, announces, brings, drops: what it does.
        completes: whether it may end the phase.
    """

    opcode: str
    counts: bool = False
    arrives: bool = False
    announces: bool = False
    brings: bool = False
    drops: bool = False
    completes: bool = True


def _arrivals() -> Iterator[_Operation]:
    orders = ("", *(f".{order}.{scope}" for order in ("release", "relaxed") for scope in ("cta", "cluster")))
    for name in ("arrive", "arrive_drop"):
        drops = name == "arrive_drop"
        for order in orders:
            yield _Operation(f"mbarrier.{name}{order}", arrives=True, drops=drops)
            yield _Operation(f"mbarrier.{name}{order}", counts=True, arrives=True, drops=drops)
            yield _Operation(f"mbarrier.{name}.expect_tx{order}", arrives=True, announces=True, drops=drops)
        for order in ("", ".release.cta"):
            opcode = f"mbarrier.{name}.noComplete{order}"
            yield _Operation(opcode, counts=True, arrives=True, drops=drops, completes=False)


_BYTES = tuple(
    _Operation(f"mbarrier.{name}.relaxed.{scope}", announces=name == "expect_tx", brings=name == "complete_tx")
    for name in ("expect_tx", "complete_tx")
    for scope in ("cta", "cluster")
)
_AGAIN = _Operation("mbarrier.inval")
_COMMON = (
    _Operation("mbarrier.arrive", counts=True, arrives=True),
    _Operation("mbarrier.arrive.expect_tx", arrives=True, announces=True),
    _BYTES[2],
)
_TESTS = ("", ".acquire.cta", ".acquire.cluster", ".relaxed.cta", ".relaxed.cluster")


def trials(rng: np.random.Generator, arch: int, warps: int) -> Iterator[Trial]:
    """Every change of a barrier and every wait for it, each in the histories of `warps` warps."""
    if arch < 90:
        return
    for operation in (*_arrivals(), *_BYTES, _AGAIN):
        yield _trial(rng, arch, operation, "mbarrier.test_wait", warps)
    for order in _TESTS:
        yield _trial(rng, arch, None, f"mbarrier.test_wait{order}", warps)
        yield _trial(rng, arch, None, f"mbarrier.try_wait{order}", warps)
    for counted in ("", ".noinc"):
        yield _copies(rng, arch, counted, warps)


class _Barriers:
    """What the ISA says of one barrier for each of n threads."""

    def __init__(self, counts: Array) -> None:
        self.expected, self.pending = counts.copy(), counts.copy()
        self.bytes, self.phase, self.seen, self.before = (np.zeros_like(counts) for _ in range(4))
        self.known = np.zeros(len(counts), np.bool_)  # whether the thread holds a state

    def apply(self, operation: _Operation, amounts: Array, does: Array) -> None:
        """Let the threads that do so change their barriers."""
        if operation.opcode == _AGAIN.opcode:
            self.expected[does] = self.pending[does] = amounts[does]
            self.bytes[does] = self.phase[does] = 0
            self.known[does] = False
            return
        sign = 1 if operation.announces else -1 if operation.brings else 0
        self.bytes[does] += sign * amounts[does]
        if operation.arrives:
            self.seen[does], self.before[does] = self.phase[does], self.pending[does]
            self.known |= does
            arrived = np.where(does, amounts if operation.counts else 1, 0)
            self.pending -= arrived
            self.expected -= arrived if operation.drops else 0
        over = does & (self.pending == 0) & (self.bytes == 0)
        self.phase[over] += 1
        self.pending[over] = self.expected[over]

    def amounts(self, rng: np.random.Generator, operation: _Operation) -> tuple[Array, Array]:
        """An amount for each thread, and which threads may use it."""
        n = len(self.pending)
        if operation.opcode == _AGAIN.opcode:
            return rng.integers(1, _MOST_ARRIVALS, n), rng.random(n) < 0.3
        most = self.pending.copy()
        if operation.drops:
            most = np.minimum(most, self.expected - 1)
        if not operation.completes:
            most = np.minimum(most, self.pending - 1)
        if operation.arrives:
            counts = np.where(rng.random(n) < 0.5, most, 1 + rng.integers(0, np.maximum(most, 1)))
            counts = counts if operation.counts else np.ones(n, np.int64)
            nbytes = rng.integers(1, _MOST_BYTES, n)
            after = self.bytes + (nbytes if operation.announces else 0)
            sound = (counts >= 1) & (counts <= most) & ((self.pending > counts) | (after >= 0))
            return nbytes if operation.announces else counts, sound
        if operation.announces:
            return rng.integers(1, _MOST_BYTES, n), self.pending > 0
        waits = self.pending == 0  # for bytes alone
        anything = rng.integers(1, _MOST_BYTES, n)
        whole = (self.bytes > 0) & (waits | (rng.random(n) < 0.7))
        part = waits & (rng.random(n) < 0.3)
        found = np.where(whole, np.where(part, 1 + self.bytes // 2, self.bytes), anything)
        return found, (found <= self.bytes) | ~waits

    def answer(self, flags: Array) -> Array:
        """What the questions of a step give: three bits, and the count of the state above them."""
        by_state = (flags & _STATE > 0) & (self.phase > self.seen)
        even, odd = ((flags & flag > 0) & (self.phase % 2 != p) for flag, p in ((_EVEN, 0), (_ODD, 1)))
        return by_state + 2 * even + 4 * odd + 8 * np.where(flags & _STATE > 0, self.before, 0)

    def questions(self, suspends: bool) -> Array:
        """The flags of what may be asked; of a wait that suspends, only what is over."""
        over = np.where(self.known & (~np.bool_(suspends) | (self.phase > self.seen)), _STATE, 0)
        even, odd = ((~np.bool_(suspends) | (self.phase % 2 != p)) for p in (0, 1))
        return over | np.where(even, _EVEN, 0) | np.where(odd, _ODD, 0)


def _trial(rng: np.random.Generator, arch: int, operation: _Operation | None, test: str, warps: int) -> Trial:
    """A history in which the operation under test is about every other step; without one, of all operations."""
    n, every = 32 * warps, (*_arrivals(), *_BYTES)
    counts = rng.integers(1, _MOST_ARRIVALS, n)
    barriers, given, answers = _Barriers(counts), [counts], list[Array]()
    body = [
        "mov.u32 %r100, cells; mad.lo.u32 %r100, %thread, 8, %r100; add.u64 %at, %in, %wide;",
        "ld.global.b32 %r10, [%at]; mbarrier.init.shared::cta.b64 [%r100], %r10;",
        "mov.u64 %x20, %in;",  # no state yet, and no constant either: of one, `pending_count` breaks compilers of 13.x
    ]
    instances = 0
    for step in range(_STEPS):
        pool = every if operation is None else _COMMON if rng.random() < 0.5 else (operation,)
        chosen = pool[rng.integers(len(pool))]
        amounts, may = barriers.amounts(rng, chosen)
        does = may & (rng.random(n) < 0.8)
        barriers.apply(chosen, amounts, does)
        flags = barriers.questions("try_wait" in test) | np.where(does, _DOES, 0)
        given.append(np.where(does, amounts, 0) | flags << 32)
        answers.append(barriers.answer(flags))
        instances += int(does.reshape(-1, 32).any(axis=1).sum()) if operation in (None, chosen) else 0
        body += _step(chosen, test, step, n)
    body += stores([f"%r{30 + step}" for step in range(_STEPS)], n)
    opcode = test if operation is None else operation.opcode + ("" if not operation.counts else " [counted]")
    expected = words(answers)
    ptx = module(arch, body, 8 * THREADS)
    ones = np.ones(expected.size, np.bool_)
    zeros = np.zeros_like(expected)
    return Trial(opcode, ptx, n // THREADS, THREADS, words(given), zeros, expected, ones, instances)


def _step(operation: _Operation, test: str, step: int, n: int) -> list[str]:
    """One change, and what is asked after it."""
    amount = ", %r10" if operation.counts or operation.announces or operation.brings else ""
    target = "%x20, " if operation.arrives else ""
    change = f"@%q1 {operation.opcode}.shared::cta.b64 {target}[%r100]{amount};"
    if operation.opcode == _AGAIN.opcode:
        change += " @%q1 mbarrier.init.shared::cta.b64 [%r100], %r10;"
    name, _, order = test.partition("_wait")
    asks = [f"@%q{2 + i} {name}_wait{'.parity' if i else ''}{order}.shared::cta.b64 %q{5 + i}" for i in range(3)]
    return [
        f"ld.global.v2.b32 {{%r10, %r11}}, [%at+{8 * n * (1 + step)}];",
        *(f"and.b32 %r12, %r11, {1 << i}; setp.ne.u32 %q{1 + i}, %r12, 0;" for i in range(4)),
        change,
        *(f"setp.ne.u32 %q{5 + i}, %r100, %r100;" for i in range(3)),
        *(f"{ask}, [%r100], {state};" for ask, state in zip(asks, ("%x20", "0", "1"), strict=True)),
        f"mov.u32 %r{30 + step}, 0; @%q2 mbarrier.pending_count.b64 %r{30 + step}, %x20;",
        f"shl.b32 %r{30 + step}, %r{30 + step}, 3;",
        *(
            f"selp.b32 %r12, {1 << i}, 0, %q{5 + i}; or.b32 %r{30 + step}, %r{30 + step}, %r12;"
            for i in range(3)
        ),
    ]  # fmt: skip


def _copies(rng: np.random.Generator, arch: int, counted: str, warps: int) -> Trial:
    """Each thread copies 16 bytes, lets their end arrive at its barrier, waits and reads them."""
    n = 32 * warps
    data = rng.integers(0, 256, 16 * n, np.uint8)
    opcode = f"cp.async.mbarrier.arrive{counted}.shared::cta.b64"
    body = [
        "mov.u32 %r100, cells; mad.lo.u32 %r101, %thread, 16, %r100; mad.lo.u32 %r102, %thread, 8, %r100;",
        f"add.u32 %r102, %r102, {16 * THREADS}; mbarrier.init.shared::cta.b64 [%r102], 1;",
        "add.u64 %x40, %in, %wide; add.u64 %x40, %x40, %wide; add.u64 %x41, %out, %wide; add.u64 %x41, %x41, %wide;",
        f"cp.async.cg.shared.global [%r101], [%x40], 16; {opcode} [%r102];",
        "" if counted else "mbarrier.arrive.shared::cta.b64 _, [%r102];",
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r102], 0; @!%q1 bra AGAIN;",
        "ld.shared.v2.b64 {%x42, %x43}, [%r101]; st.global.v2.b64 [%x41], {%x42, %x43};",
    ]
    ptx, ones = module(arch, body, 24 * THREADS), np.ones(data.size, np.bool_)
    return Trial(opcode, ptx, n // THREADS, THREADS, data, np.zeros_like(data), data, ones, warps)
