"""Finds the steps of a program, and times blocks of them with the original and with the variant in turn.

Runs in the user's process. A step ends where an optimizer of torch's has stepped, or where the function that
`KERNEL_LSP_SHADOW_STEP` names returns. A segment is one step that is not timed, in which the side has changed, and some
that are, between two moments at which the GPU has nothing left to do; within them nothing waits and nothing is
compared. Four segments are a block, ABBA and BAAB in turn. Nothing is computed here but the number of steps.
"""

import functools
import math
import os
import sys
import time
import weakref

WARM_STEPS = 4
SEGMENT_SECONDS = 0.1
MOST_STEPS = 50
MOST_SEGMENTS = 4000
_ORDER = ("original", "variant", "variant", "original", "variant", "original", "original", "variant")


class Steps:
    """The steps of this process.

    Attributes:
        side: the side that is to run now.
        timing: True within timed steps.
        count: number of steps that have ended.
        segments: of each timed segment its side, steps and seconds.
    """

    def __init__(self, guarded):
        self.name = os.environ.get("KERNEL_LSP_SHADOW_STEP", "")
        self.side, self.timing, self.count, self.segments = "variant", False, 0, []
        self._guarded = guarded
        self._found = self.name == "none"
        self._optimizer = None
        self._length, self._began, self._left = 0, 0.0, 0

    def look(self):
        """Begin to hear of steps, once what makes them is there."""
        if self._found:
            return
        if self.name:
            self._look_for_function()
        elif _has_gpu() and os.environ.get("WORLD_SIZE", "1") == "1":
            optimizers = sys.modules.get("torch.optim.optimizer")
            if optimizers is not None:
                self._found = True
                optimizers.register_optimizer_step_post_hook(self._guarded(self._stepped))
        else:
            self._found = True

    def _look_for_function(self):
        parts = self.name.split(".")
        for split in range(len(parts) - 1, -1, -1):
            holder = sys.modules.get(".".join(parts[:split]) or "__main__")
            for part in parts[split:-1]:
                holder = getattr(holder, part, None)
            function = getattr(holder, parts[-1], None)
            if callable(function):
                self._found = True
                setattr(holder, parts[-1], self._around(function))
                return

    def _around(self, function):
        ended = self._guarded(self.ended)

        @functools.wraps(function)
        def step(*args, **kwargs):
            result = function(*args, **kwargs)
            ended()
            return result

        return step

    def _stepped(self, optimizer, args, kwargs):
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:  # of several, such as those of two networks, the first one counts
            self.ended()

    def ended(self):
        """Hear that a step has ended."""
        self.count += 1
        if len(self.segments) >= MOST_SEGMENTS:
            return
        if self.count < WARM_STEPS:
            return
        if not self._length:
            self._choose_length()
            return
        if not self.timing:
            _wait()
            self.timing, self._left, self._began = True, self._length, time.perf_counter()
            return
        self._left -= 1
        if not self._left:
            _wait()
            self.segments.append((self.side, self._length, time.perf_counter() - self._began))
            self._next()

    def _choose_length(self):
        _wait()
        now = time.perf_counter()
        if not self._began:
            self._began = now
            return
        self._length = min(max(math.ceil(SEGMENT_SECONDS / max(now - self._began, 1e-6)), 1), MOST_STEPS)
        self._next()

    def _next(self):
        done = len(self.segments)
        self.timing = False
        self.side = _ORDER[done % len(_ORDER)] if done < MOST_SEGMENTS else "variant"


def _has_gpu():
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and "KERNEL_LSP_EMULATE" not in os.environ


def _wait():
    """Wait until the GPU has done all that it was given."""
    if _has_gpu() and sys.modules["torch"].cuda.is_initialized():
        sys.modules["torch"].cuda.synchronize()
