"""Records, in the user's own process, which functions launch Triton kernels, with their arguments and results.

It never raises, prints nothing, and ends itself after its third error; `seen.py` writes. The functions that are watched
are those of files that define a Triton function. Python 3.12 tells of their calls by `sys.monitoring`, older ones by
`sys.setprofile`.
"""

import dis
import os
import sys
import threading

import _kernel_lsp_calls as calls
import _kernel_lsp_launches as launches
import _kernel_lsp_seen as seen

_UNWATCHED = 0x20 | 0x80 | 0x100 | 0x200  # generators and coroutines: their frames end more than once
_VARIADIC = 0x04 | 0x08


def _is_watched(code):
    if id(code) in seen.STATE.watched:
        return True
    if code.co_filename in seen.STATE.files and not code.co_flags & _UNWATCHED and not code.co_name.startswith("<"):
        seen.STATE.watched[id(code)] = code  # kept, so that no other code gets its id
        return True
    return False


def _arguments(code, variables):
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: variables[name] for name in names if name in variables}


@seen.guarded
def _entered(code, frame):
    values = dict(frame.f_locals)  # as it begins, it has no other variables
    seen.LOCAL.here.calls.append(calls.BegunCall(code, values, False))


@seen.guarded
def _left(code, returned, whole):
    begun = seen.LOCAL.here.calls
    if begun and begun[-1].code is not code:  # above it are calls whose end nobody told of
        at = max((at for at, call in enumerate(begun) if call.code is code), default=len(begun))
        del begun[at + 1 :]
    if begun and begun[-1].code is code:
        call = begun.pop()
        if whole:
            calls.finish(call, returned)


def _profile(frame, event, argument):
    if event == "call":
        if frame.f_code.co_filename in seen.STATE.files and _is_watched(frame.f_code):
            _entered(frame.f_code, frame)
    elif event == "return" and frame.f_code.co_filename in seen.STATE.files and _is_watched(frame.f_code):
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
    if seen.STATE.watching:
        if anew:
            monitoring.restart_events()
        return
    seen.STATE.watching = True
    tool = next((i for i in (4, 3, 5, 2) if monitoring.get_tool(i) is None), None)
    if tool is None:
        return
    events, watched = monitoring.events, seen.STATE.watched  # looked into here, as each call waits for it

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

    seen.STATE.tool = tool
    monitoring.use_tool_id(tool, "kernel-lsp")
    monitoring.register_callback(tool, events.PY_START, started)
    monitoring.register_callback(tool, events.PY_RETURN, returned)
    monitoring.register_callback(tool, events.PY_UNWIND, unwound)
    monitoring.set_events(tool, events.PY_START | events.PY_RETURN | events.PY_UNWIND)


def _code_of(jit):
    function = getattr(jit, "fn", None)
    return getattr(function, "__code__", None)


def _is_of_a_library(file):
    """Return True for a file of Triton or torch; a folder of that name in a project is none."""
    packages = (getattr(sys.modules.get(name), "__file__", None) for name in ("triton", "torch"))
    return any(file.startswith(os.path.dirname(package) + os.sep) for package in packages if package)


@seen.guarded
def defined(jit):
    """Watch the functions of a new Triton function's file from now on."""
    code = _code_of(jit)
    file = code.co_filename if code else ""
    if not file or _is_of_a_library(file) or file in seen.STATE.files or not os.path.isfile(file):
        return
    with open(file, encoding="utf-8", errors="replace") as opened:
        seen.STATE.files[file] = opened.read()
    _watch_calls(anew=True)


@seen.guarded
def launched(jit, args, kwargs):
    """Count a launch before it happens; describe its call's arguments if their signature is new.

    Returns the launch where it is recorded by itself: then `landed` wants to hear of its end.
    """
    if not seen.is_open():
        return None
    found = seen.STATE.launchers.get(id(jit)) or _launcher(jit)
    if found is None:
        return None
    _, kernel, described = found
    seen.STATE.launches += 1
    kernel["launches"] += 1
    if not described:
        return None
    begun = seen.LOCAL.here.calls
    if begun and begun[-1].known is not None and begun[-1].code.co_filename == kernel["file"]:
        begun[-1].record = begun[-1].known  # as most launches: of such a call nothing is described any more
    else:
        if seen.STATE.tool is None:
            _watch_calls()
        call, why = _caller(kernel["file"])
        if call is None:
            return launches.begin(jit, kernel, why, args, kwargs)
        if kernel["name"] not in call.kernels:
            call.kernels.append(kernel["name"])
        calls.begin(call)
    seen.write_counts_when_due()
    return None


@seen.guarded
def landed(launch):
    """Finish a launch that is recorded by itself."""
    calls.finish(launch, None)
    seen.write_counts_when_due()


def _launcher(jit):
    """Return a Triton function with its kernel's record, and True if its calls are described; None if it has no code.

    With the function itself, so that no other gets its id.
    """
    code = _code_of(jit)
    if code is None:
        return None
    name, file = jit.fn.__name__, code.co_filename
    kernel = seen.STATE.kernels.setdefault(
        (file, name), dict(file=file, name=name, line=code.co_firstlineno, launches=0, why="")
    )
    described = file in seen.STATE.files and (not seen.STATE.only or any(part in name for part in seen.STATE.only))
    seen.STATE.launchers[id(jit)] = jit, kernel, described
    return seen.STATE.launchers[id(jit)]


def _caller(file):
    """Return the innermost call of a callable function of the kernel's file, else the reason why there is none."""
    here = seen.LOCAL.here
    begun = here.calls
    if here.files != len(seen.STATE.files):
        here.files = len(seen.STATE.files)
        begun[:0] = _begun_before(begun)
    why = ""
    for call in reversed(begun):
        if call.code.co_filename == file:
            unusable = _unusable(call)
            if unusable is None:
                return call, ""
            why = f"`{call.code.co_name}`: {unusable}"
    return None, why or f"no function of {os.path.basename(file)} launches it"


def _begun_before(begun):
    """Return the calls, outermost first, that began before this thread was watched, or their files were."""
    known = {call.code for call in begun}
    frame, late = sys._getframe(1), []
    while frame is not None:
        if frame.f_code not in known and _is_watched(frame.f_code):
            late.append(calls.BegunCall(frame.f_code, _arguments(frame.f_code, frame.f_locals), True))
        frame = frame.f_back
    return late[::-1]


def _unusable(call):
    if call.record is not None or call.known is not None:
        return None
    code = call.code
    if id(code) not in seen.STATE.unusable:
        seen.STATE.unusable[id(code)] = _unusable_function(code)
    if (why := seen.STATE.unusable[id(code)]) is not None:
        return why
    for name, value in call.values.items():
        if not calls.described().can_be_given(value):
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
    if id(code) not in seen.STATE.rebound:
        names = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        stored = (i.argval for i in dis.get_instructions(code) if i.opname.startswith(("STORE_FAST", "DELETE_FAST")))
        flat = (n for value in stored for n in (value if isinstance(value, tuple) else (value,)))
        seen.STATE.rebound[id(code)] = [n for n in flat if n in names]
    return seen.STATE.rebound[id(code)]


@seen.guarded
def generated(tuner):
    """Count a launch of a kernel that torch.compile wrote."""
    if not seen.is_open():
        return
    seen.STATE.launches += 1
    name = (getattr(tuner, "inductor_meta", None) or {}).get("kernel_name") or getattr(tuner.fn, "__name__", "?")
    kernel = seen.STATE.generated.setdefault(name, dict(name=name, launches=0))
    kernel["launches"] += 1
    seen.write_counts_when_due()


def at_end():
    """Watch nothing more, and write the last counts."""
    seen.LOCAL.here.busy = True
    # The interpreter clears this module before it stops calling it.
    if sys.getprofile() is _profile:
        sys.setprofile(None)
    if seen.STATE.tool is not None:
        sys.monitoring.set_events(seen.STATE.tool, 0)
    try:
        if seen.STATE.launches:
            seen.write_counts()
    except Exception:
        seen.STATE.on = False
