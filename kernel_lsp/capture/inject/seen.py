"""Keeps what is seen of one process of a captured program, and writes its file of JSON lines.

A line for each new signature of a function, and one with all counts now and then, of which the last counts. Standard
library, and torch as the program imported it.
"""

import functools
import json
import os
import sys
import threading
import time

MOST_ERRORS = 3
_WRITE_EVERY_SECONDS = 1.0
_lock = threading.RLock()


class _Here:
    """State of one thread."""

    __slots__ = ("busy", "calls", "files", "tuning")

    def __init__(self):
        self.busy = False  # in a hook, whose own calls are none of the program's
        self.calls = []  # of watched functions, outermost first
        self.files = 0  # how many were watched when its calls were last looked through
        self.tuning = 0  # autotuners that are at their trials


class _Local(threading.local):
    def __init__(self):
        self.here = _Here()


LOCAL = _Local()


class _State:
    def __init__(self):
        self.folder = os.environ.get("KERNEL_LSP_CAPTURE", "")
        self.only = [name for name in os.environ.get("KERNEL_LSP_CAPTURE_KERNELS", "").split("\n") if name]
        self.files = {}  # of Triton functions: their text when first seen
        self.functions, self.kernels, self.generated = {}, {}, {}
        # By the ids of codes: to hash a code takes all that is in it. Whatever is in the others is watched.
        self.watched, self.unusable, self.rebound, self.known = {}, {}, {}, {}
        self.launchers = {}  # by the id of a Triton function: itself, its kernel, if its calls are described
        self.errors, self.on, self.launches = [], True, 0
        self.left = int(os.environ.get("KERNEL_LSP_CAPTURE_AFTER", 0))  # launches before recording begins
        self.window, self.opened = float(os.environ.get("KERNEL_LSP_CAPTURE_WINDOW", 0)), None
        self.began = self.written = time.perf_counter()
        self.process = os.getpid()
        self.watching, self.tool = False, None  # the id of `sys.monitoring` under which calls are watched


STATE = _State()


def guarded(function):
    """Note an exception in a hook; after the third nothing more is recorded."""

    @functools.wraps(function)
    def guarded(*args):
        here = LOCAL.here
        if here.busy or not STATE.on:
            return None
        here.busy = True
        try:
            return function(*args)
        except Exception as error:
            STATE.errors.append(f"{function.__name__}: {type(error).__name__}: {error}"[:300])
            STATE.on = len(STATE.errors) < MOST_ERRORS
            return None
        finally:
            here.busy = False

    return guarded


class SeenFunction:
    """A function that launches kernels, or a kernel that is launched by itself."""

    def __init__(self, code):
        self.file, self.name, self.line = code.co_filename, code.co_name, code.co_firstlineno
        self.signatures, self.is_kernel = {}, False
        self.others = Signature(self, None)  # the calls of all signatures beyond the most that are kept

    def counts(self):
        """Return its calls and their seconds, in all and by signature, as plain data."""
        kept = list(self.signatures.values())
        return dict(
            file=self.file, name=self.name, line=self.line, is_kernel=self.is_kernel,
            calls=sum(one.count for one in (*kept, self.others)),
            seconds=sum(one.seconds for one in (*kept, self.others)),
            dropped=self.others.count, signatures={one.number: [one.count, one.seconds] for one in kept},
        )  # fmt: skip


class Signature:
    """The calls of a function with arguments of the same form."""

    __slots__ = ("count", "function", "number", "seconds")

    def __init__(self, function, number):
        self.function, self.number, self.count, self.seconds = function, number, 0, 0.0


def is_open():
    """Return True for a launch within the window that is recorded; when that has passed, recording ends."""
    if STATE.left > 0:
        STATE.left -= 1
        return False
    if STATE.window:
        STATE.opened = STATE.opened or time.perf_counter()
        if time.perf_counter() - STATE.opened > STATE.window:
            STATE.on = False
    return STATE.on


def line(document):
    """Write one line, plain data as JSON."""
    with _lock:
        if os.getpid() != STATE.process:  # a fork: what its parent counted is its parent's
            STATE.process, STATE.launches = os.getpid(), 0
            for group in (STATE.functions, STATE.known, STATE.kernels, STATE.launchers, STATE.generated):
                group.clear()
        path = os.path.join(STATE.folder, f"{STATE.process}.jsonl")
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")


def write_counts_when_due():
    """Write all counts so far, unless that was done just before: a program that is killed loses no more than that."""
    if time.perf_counter() - STATE.written > _WRITE_EVERY_SECONDS:
        write_counts()


def write_counts():
    """Write all counts so far."""
    STATE.written = time.perf_counter()
    functions = [function.counts() for function in list(STATE.functions.values())]
    line(
        dict(
            kind="counts", program=os.path.basename(sys.argv[0] or "python"), seconds=STATE.written - STATE.began,
            launches=STATE.launches, functions=functions, kernels=list(STATE.kernels.values()),
            generated=list(STATE.generated.values()), errors=STATE.errors, device=_device(), events=_event_times(),
        )
    )  # fmt: skip


def _event_times():
    events = sys.modules.get("_kernel_lsp_events")
    return events.times() if events is not None and events.ON else {}


def _device():
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if (
            cuda is not None
            and cuda.is_available()
            and cuda.is_initialized()
            and "KERNEL_LSP_EMULATE" not in os.environ
        ):
            return cuda.get_device_name()
    except Exception:
        return ""
    return ""
