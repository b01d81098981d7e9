"""Records, in the user's own process, which functions launch Triton kernels, with their arguments and results.

Standard library, and torch as the program imported it; nothing of Kernel LSP. It never raises, prints nothing, holds no
tensor past the call it came in, and ends itself after its third error. One file of JSON lines for each process, in the
folder that `KERNEL_LSP_CAPTURE` names: a line for each new signature, and one with all counts now and then, of which
the last counts.

The functions that are watched are those of files that define a Triton function. Python 3.12 tells of their calls by
`sys.monitoring`, older ones by `sys.setprofile`.
"""

import dis
import functools
import json
import os
import sys
import threading
import time

_describe = None  # the module beside this one, loaded with torch
MOST_SIGNATURES = 64
MOST_ERRORS = 3
WRITE_EVERY_SECONDS = 1.0
_UNWATCHED = 0x20 | 0x80 | 0x100 | 0x200  # generators and coroutines: their frames end more than once
_VARIADIC = 0x04 | 0x08
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


_local = _Local()


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


def _guarded(function):
    """Note an exception in a hook; after the third nothing more is recorded."""

    @functools.wraps(function)
    def guarded(*args):
        here = _local.here
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


class _Function:
    """A function that launches kernels."""

    def __init__(self, code):
        self.file, self.name, self.line = code.co_filename, code.co_name, code.co_firstlineno
        self.signatures = {}
        self.others = _Signature(self, None)  # the calls of all signatures beyond the most that are kept

    def counts(self):
        kept = list(self.signatures.values())
        return dict(
            file=self.file, name=self.name, line=self.line,
            calls=sum(one.count for one in (*kept, self.others)),
            seconds=sum(one.seconds for one in (*kept, self.others)),
            dropped=self.others.count, signatures={one.number: [one.count, one.seconds] for one in kept},
        )  # fmt: skip


class _Signature:
    """The calls of a function with arguments of the same form."""

    __slots__ = ("count", "function", "number", "seconds")

    def __init__(self, function, number):
        self.function, self.number, self.count, self.seconds = function, number, 0, 0.0


class _Call:
    """A call of a watched function that has not returned."""

    __slots__ = ("began", "case", "code", "forms", "kernels", "known", "late", "record", "values", "versions")

    def __init__(self, code, values, late):
        self.code, self.values, self.late = code, values, late
        self.record, self.case, self.kernels, self.forms = None, None, [], None
        function = STATE.known.get(id(code))
        # What a call of the same signature is recorded in. Most calls of a program have one, and are not looked at.
        self.known = None if function is None else function.signatures.get(self.signature())
        self.versions = _versions(values) if self.known is None else {}
        self.began = time.perf_counter()

    def signature(self):
        if self.forms is None:
            form = _described().signature
            self.forms = tuple([form(value) for value in self.values.values()])  # quicker than a generator
        return self.forms


def _versions(values):
    """Return the versions of the tensors among these by name; those of inference have none."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", ())
    return {
        name: value._version for name, value in values.items() if isinstance(value, tensor) and not value.is_inference()
    }


def _is_watched(code):
    if id(code) in STATE.watched:
        return True
    if code.co_filename in STATE.files and not code.co_flags & _UNWATCHED and not code.co_name.startswith("<"):
        STATE.watched[id(code)] = code  # kept, so that no other code gets its id
        return True
    return False


def _arguments(code, variables):
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: variables[name] for name in names if name in variables}


# Calls: their entry and return.


@_guarded
def _entered(code, frame):
    _local.here.calls.append(_Call(code, dict(frame.f_locals), False))  # as it begins, it has no other variables


@_guarded
def _left(code, returned, whole):
    calls = _local.here.calls
    at = len(calls) - 1
    while at >= 0 and calls[at].code is not code:
        at -= 1
    if at >= 0:
        call = calls[at]
        del calls[at:]
        if whole:
            _finish(call, returned)


def _profile(frame, event, argument):
    if event == "call":
        if frame.f_code.co_filename in STATE.files and _is_watched(frame.f_code):
            _entered(frame.f_code, frame)
    elif event == "return" and frame.f_code.co_filename in STATE.files and _is_watched(frame.f_code):
        _left(frame.f_code, argument, True)


def _watch_calls(*, anew=False):
    """Watch the calls of this thread; with `sys.monitoring` those of all threads.

    With `anew` calls that nobody wanted to hear of are looked at once more. Each function of the program pays for that.
    """
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        if sys.getprofile() is None:
            sys.setprofile(_profile)
            threading.setprofile(_profile)
        return
    if STATE.watching:
        if anew:
            monitoring.restart_events()
        return
    STATE.watching = True
    tool = next((i for i in (4, 3, 5, 2) if monitoring.get_tool(i) is None), None)
    if tool is None:
        return
    events, watched = monitoring.events, STATE.watched  # looked into here, as each call waits for it

    def started(code, _):
        if id(code) not in watched and not _is_watched(code):
            return monitoring.DISABLE
        frame = sys._getframe(1)
        if frame.f_code is code:
            _entered(code, frame)
        return None

    def returned(code, _, value):
        if id(code) not in watched and not _is_watched(code):
            return monitoring.DISABLE
        _left(code, value, True)
        return None

    def unwound(code, _, error):
        if _is_watched(code):
            _left(code, None, False)

    STATE.tool = tool
    monitoring.use_tool_id(tool, "kernel-lsp")
    monitoring.register_callback(tool, events.PY_START, started)
    monitoring.register_callback(tool, events.PY_RETURN, returned)
    monitoring.register_callback(tool, events.PY_UNWIND, unwound)
    monitoring.set_events(tool, events.PY_START | events.PY_RETURN | events.PY_UNWIND)


# Launches.


def _is_open():
    """Return True for a launch within the window that is recorded; when that has passed, recording ends."""
    if STATE.left > 0:
        STATE.left -= 1
        return False
    if STATE.window:
        STATE.opened = STATE.opened or time.perf_counter()
        if time.perf_counter() - STATE.opened > STATE.window:
            STATE.on = False
    return STATE.on


def _code_of(jit):
    function = getattr(jit, "fn", None)
    return getattr(function, "__code__", None)


@_guarded
def _defined(jit):
    """Watch the functions of a new Triton function's file from now on."""
    code = _code_of(jit)
    file = code.co_filename if code else ""
    library = f"{os.sep}triton{os.sep}" in file or f"{os.sep}torch{os.sep}" in file
    if not file or library or file in STATE.files or not os.path.isfile(file):
        return
    with open(file, encoding="utf-8", errors="replace") as opened:
        STATE.files[file] = opened.read()
    _watch_calls(anew=True)


@_guarded
def _launched(jit):
    """Count a launch before it happens; describe its call's arguments if their signature is new."""
    if not _is_open():
        return
    found = STATE.launchers.get(id(jit)) or _launcher(jit)
    if found is None:
        return
    _, kernel, described = found
    STATE.launches += 1
    kernel["launches"] += 1
    if not described:
        return
    if STATE.tool is None:
        _watch_calls()
    call, why = _caller(kernel["file"])
    if call is None:
        kernel["why"] = why
        return
    if kernel["name"] not in call.kernels:
        call.kernels.append(kernel["name"])
    _begin(call)
    if time.perf_counter() - STATE.written > WRITE_EVERY_SECONDS:
        _write_counts()


def _launcher(jit):
    """Return a Triton function with its kernel's record, and True if its calls are described; None if it has no code.

    With the function itself, so that no other gets its id.
    """
    code = _code_of(jit)
    if code is None:
        return None
    name, file = jit.fn.__name__, code.co_filename
    kernel = STATE.kernels.setdefault(
        (file, name), dict(file=file, name=name, line=code.co_firstlineno, launches=0, why="")
    )
    described = file in STATE.files and (not STATE.only or any(part in name for part in STATE.only))
    STATE.launchers[id(jit)] = jit, kernel, described
    return STATE.launchers[id(jit)]


def _caller(file):
    """Return the innermost call of a callable function of the kernel's file, else the reason why there is none."""
    here = _local.here
    calls = here.calls
    if here.files != len(STATE.files):
        here.files = len(STATE.files)
        calls[:0] = _begun_before(calls)
    why = ""
    for call in reversed(calls):
        if call.code.co_filename == file:
            unusable = _unusable(call)
            if unusable is None:
                return call, ""
            why = f"`{call.code.co_name}`: {unusable}"
    return None, why or f"no function of {os.path.basename(file)} launches it"


def _begun_before(calls):
    """Return the calls, outermost first, that began before this thread was watched, or their files were."""
    seen = {call.code for call in calls}
    frame, late = sys._getframe(1), []
    while frame is not None:
        if frame.f_code not in seen and _is_watched(frame.f_code):
            late.append(_Call(frame.f_code, _arguments(frame.f_code, frame.f_locals), True))
        frame = frame.f_back
    return late[::-1]


def _unusable(call):
    if call.record is not None or call.known is not None:
        return None
    code = call.code
    if id(code) not in STATE.unusable:
        STATE.unusable[id(code)] = _unusable_function(code)
    if (why := STATE.unusable[id(code)]) is not None:
        return why
    for name, value in call.values.items():
        if not _described().can_be_given(value):
            return f"its argument `{name}` is a {type(value).__name__}"
    if call.late and (names := _rebound(code)):
        return f"its argument `{names[0]}` is bound again before it was seen"
    return None


def _unusable_function(code):
    """Return why a function cannot be called again, whatever its arguments; None if it can."""
    if getattr(code, "co_qualname", code.co_name) != code.co_name or not _is_global(code):
        return "it is not a function of the module"
    return "it takes *args or **kwargs" if code.co_flags & _VARIADIC else None


def _is_global(code):
    """Return True if the module of its file has this code's function under its name."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == code.co_filename:
            function = getattr(module, code.co_name, None)
            while function is not None and getattr(function, "__code__", None) is not code:
                function = getattr(function, "__wrapped__", None)
            return function is not None
    return False


def _rebound(code):
    if id(code) not in STATE.rebound:
        names = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        stored = (i.argval for i in dis.get_instructions(code) if i.opname.startswith(("STORE_FAST", "DELETE_FAST")))
        flat = (n for value in stored for n in (value if isinstance(value, tuple) else (value,)))
        STATE.rebound[id(code)] = [n for n in flat if n in names]
    return STATE.rebound[id(code)]


def _described():
    global _describe
    if _describe is None:
        import importlib.util

        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "describe.py")
        spec = importlib.util.spec_from_file_location("_kernel_lsp_describe", path)
        _describe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_describe)
    return _describe


def _function_of(code):
    """Return what is recorded of a code's function."""
    function = STATE.functions.setdefault((code.co_filename, code.co_name), _Function(code))
    STATE.known[id(code)] = function
    return function


def _begin(call):
    """Record a call that launches, if it is not; describe its arguments if its signature is new."""
    call.record = call.record or call.known
    if call.record is not None:
        return
    function = STATE.known.get(id(call.code)) or _function_of(call.code)
    signatures = function.signatures
    call.record = signatures.get(call.signature())  # a call of this signature may have launched since this one began
    if call.record is not None:
        return
    if len(signatures) >= MOST_SIGNATURES:
        call.record = function.others
        return
    call.record = signatures[call.signature()] = _Signature(function, len(signatures))
    if not _in_a_graph():
        before = time.perf_counter()
        call.case = _described().describe_arguments(call.values)
        call.began += time.perf_counter() - before  # which is no time of the program's


def _in_a_graph():
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return cuda is not None and cuda.is_available() and cuda.is_current_stream_capturing()
    except Exception:
        return False


def _finish(call, returned):
    if call.record is None:
        return
    call.record.count += 1
    call.record.seconds += time.perf_counter() - call.began
    if call.case is None:
        return
    describe, function = _described(), call.record.function
    _line(
        dict(
            kind="case", file=function.file, function=function.name, number=call.record.number,
            text=STATE.files[function.file], arguments=call.case, kernels=call.kernels, late=call.late,
            mutated=describe.mutated(call.case, call.values, call.versions), returned=describe.returned(returned),
        )
    )  # fmt: skip
    _write_counts()


@_guarded
def _generated(tuner):
    if not _is_open():
        return
    STATE.launches += 1
    name = (getattr(tuner, "inductor_meta", None) or {}).get("kernel_name") or getattr(tuner.fn, "__name__", "?")
    kernel = STATE.generated.setdefault(name, dict(name=name, launches=0))
    kernel["launches"] += 1
    if time.perf_counter() - STATE.written > WRITE_EVERY_SECONDS:
        _write_counts()


# What is written.


def _line(document):
    with _lock:
        if os.getpid() != STATE.process:  # a fork: what its parent counted is its parent's
            STATE.process, STATE.launches = os.getpid(), 0
            for group in (STATE.functions, STATE.known, STATE.kernels, STATE.launchers, STATE.generated):
                group.clear()
        path = os.path.join(STATE.folder, f"{STATE.process}.jsonl")
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")


def _write_counts():
    STATE.written = time.perf_counter()
    functions = [function.counts() for function in list(STATE.functions.values())]
    _line(
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


def _at_end():
    _local.here.busy = True
    # The interpreter clears this module before it stops calling it.
    if sys.getprofile() is _profile:
        sys.setprofile(None)
    if STATE.tool is not None:
        sys.monitoring.set_events(STATE.tool, 0)
    try:
        if STATE.launches:
            _write_counts()
    except Exception:
        STATE.on = False
