"""Runs a variant of a kernel's file in the user's own process, and does some calls with the original too.

Standard library, and torch as the program imported it; nothing of Kernel LSP. It never raises, prints nothing, holds no
tensor past the call it came in, and ends itself after its third error: then the original runs. One JSON file for each
process that imported the kernel's file, in the folder that `KERNEL_LSP_CAPTURE` names.

Once the file has been imported, the variant's text is executed as a second module, and those functions of the file
that launch kernels give way to ones that call the variant. Which these are is read off their code: a function that
names a kernel, or names a class or a method that does.
"""

import atexit
import functools
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import threading
import time

MOST_ERRORS = 3
MOST_SIGNATURES = 64
WRITE_EVERY_SECONDS = 1.0
_local = threading.local()
_lock = threading.RLock()


class _State:
    def __init__(self):
        self.folder = os.environ.get("KERNEL_LSP_CAPTURE", "")
        self.file = os.environ.get("KERNEL_LSP_SHADOW_FILE", "")
        self.variant = os.environ.get("KERNEL_LSP_SHADOW_VARIANT", "")
        self.every = max(int(os.environ.get("KERNEL_LSP_SHADOW_EVERY") or 100), 1)
        self.on, self.errors, self.hooked, self.steps = True, [], False, None
        self.process = os.getpid()
        self.began = self.written = time.perf_counter()
        self.functions, self.missing, self.outside = {}, [], {}
        self.why, self.worst, self.wrong = "", None, []


STATE = _State()


def _guarded(function):
    """Note an exception in what is ours; after the third only the original runs."""

    @functools.wraps(function)
    def guarded(*args):
        try:
            return function(*args)
        except Exception as error:
            STATE.errors.append(f"{function.__name__}: {type(error).__name__}: {error}"[:300])
            STATE.on = STATE.on and len(STATE.errors) < MOST_ERRORS
            return None

    return guarded


def _part(name):
    """Return a module beside this one."""
    full = f"_kernel_lsp_{name}"
    if full not in sys.modules:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
        spec = importlib.util.spec_from_file_location(full, path)
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


# The file's import.


def start():
    """Wait for the import of the kernel's file, by whatever loads source files here."""
    loader, name = importlib.machinery.SourceFileLoader, os.path.basename(STATE.file)
    execute = loader.exec_module

    @functools.wraps(execute)
    def exec_module(self, module):
        execute(self, module)
        file = getattr(module, "__file__", None) or ""
        if file.endswith(name) and os.path.realpath(file) == STATE.file:
            _imported(module)

    loader.exec_module = exec_module


def _said(error):
    return _part("shadow_module").said(error, STATE.variant)


@_guarded
def _imported(module):
    if not STATE.hooked:
        STATE.hooked = True
        atexit.register(_write)
        os.register_at_fork(after_in_child=_forked)
        _hook_launches()
        STATE.steps = _part("shadow_steps").Steps(_guarded)
    parts = _part("shadow_module")
    names = parts.launching(module, STATE.file)
    try:
        variant = parts.executed(module, STATE.variant)
    except BaseException as error:
        STATE.why = f"the variant cannot be imported: {_said(error)}"
        if not isinstance(error, (Exception, SystemExit)):
            raise
        variant = None
    if variant is not None:
        for name in names:
            _replace(module, variant, name)
    _write()


# Launches.


def _hook_launches():
    for name, kind in (("jit", "JITFunction"), ("interpreter", "InterpretedFunction")):
        cls = getattr(sys.modules.get(f"triton.runtime.{name}"), kind, None)
        if cls is not None:
            cls.run = _counting(cls.run)


def _counting(original):
    @functools.wraps(original)
    def run(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        _local.launched = getattr(_local, "launched", 0) + 1
        if getattr(_local, "side", None) is None and not kwargs.get("warmup"):
            _launched_outside(self)
        return result

    return run


@_guarded
def _launched_outside(jit):
    """Count a launch of the file's kernels that no replaced function makes."""
    code = getattr(getattr(jit, "fn", None), "__code__", None)
    file = os.path.realpath(code.co_filename) if code is not None else ""
    if file in (STATE.file, os.path.realpath(STATE.variant)):
        name = f"{code.co_name} of the {'original' if file == STATE.file else 'variant'}"
        STATE.outside[name] = STATE.outside.get(name, 0) + 1


# Calls.


class _Function:
    """Counts of one function."""

    def __init__(self, name, original, variant):
        self.name, self.original, self.variant = name, original, variant
        self.next, self.signatures = 0, set()
        self.clear()

    def clear(self):
        self.calls = self.by_variant = self.compared = self.wrong = 0
        self.failed, self.skipped = "", {}

    def skip(self, why):
        self.skipped[why] = self.skipped.get(why, 0) + 1

    def document(self):
        kept = ("name", "calls", "by_variant", "compared", "wrong", "failed", "skipped")
        return {name: getattr(self, name) for name in kept}


def _replace(module, variant, name):
    original, other = vars(module)[name], vars(variant).get(name)
    if not callable(other):
        STATE.missing.append(name)
        return
    entry = STATE.functions.setdefault(name, _Function(name, original, other))
    entry.original, entry.variant = original, other

    @functools.wraps(original)
    def shadowed(*args, **kwargs):
        side = getattr(_local, "side", None)
        if side is not None:  # called by a function that was replaced itself
            return (original if side == "original" else other)(*args, **kwargs)
        if _is_compiling():
            return other(*args, **kwargs)
        return _call(entry, args, kwargs)

    for key in [key for key, value in vars(module).items() if value is original]:
        setattr(module, key, shadowed)
    setattr(variant, name, shadowed)  # a backward pass of the variant begins outside of any function


def _is_compiling():
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and compiler.is_compiling()


def _on(side, function, args, kwargs):
    _local.side = side
    try:
        return function(*args, **kwargs)
    finally:
        _local.side = None


def _call(entry, args, kwargs):
    """Do a call with the variant, or with the original where it is that one's turn or the variant has failed."""
    _before(entry)
    if not STATE.on or entry.failed or STATE.steps.side == "original":
        return _on("original", entry.original, args, kwargs)
    twice = _original_first(entry, args, kwargs)
    launched = getattr(_local, "launched", 0)
    result, failure = _tried(entry, args, kwargs)
    if twice is not None and failure.startswith("OutOfMemoryError") and _restore(twice):
        twice = None
        entry.skip("there is no memory for both")
        result, failure = _tried(entry, args, kwargs)
    if failure:
        launched = getattr(_local, "launched", 0) - launched
        restored = _restore(twice) if twice is not None else None
        twice = None
        result = _on("original", entry.original, args, kwargs)  # what it raises, the program would have seen
        _failed(entry, failure, 0 if restored else launched)
        return result
    _after(entry, twice, result, args, kwargs)
    return result


def _tried(entry, args, kwargs):
    """Return the variant's result, or None and what it raised; the latter is empty else."""
    try:
        return _on("variant", entry.variant, args, kwargs), ""
    except Exception as error:
        return None, _said(error)


@_guarded
def _before(entry):
    entry.calls += 1
    STATE.steps.look()
    if time.perf_counter() - STATE.written > WRITE_EVERY_SECONDS and not STATE.steps.timing:
        _write()


@_guarded
def _restore(twice):
    """Undo what a variant has changed before it failed; return True."""
    twice.before.restore()
    twice.random.restore()
    return True


@_guarded
def _failed(entry, failure, launched):
    changed = f", after {launched} launches: what it had changed in place stays changed" if launched else ""
    entry.failed = f"call {entry.calls}: {failure}{changed}"
    _write()


class _Twice:
    """A call that was done by the original, on copies."""

    __slots__ = ("before", "copies", "random", "result")


@_guarded
def _original_first(entry, args, kwargs):
    """Return the call as the original does it on copies, where it is to be done by both; else None."""
    if STATE.steps.timing:
        return None
    describe = _part("describe")
    why = _unable(describe, args, kwargs)
    if why:
        entry.skip(why)
        return None
    signature = repr([describe.signature(value) for value in (*args, *kwargs.items())])
    new = signature not in entry.signatures and len(entry.signatures) < MOST_SIGNATURES
    if not new and entry.calls < entry.next:
        return None
    entry.signatures.add(signature)
    entry.next = entry.calls + STATE.every
    compare = _part("shadow_compare")
    twice = _Twice()
    try:
        twice.copies, twice.before = compare.ArgumentCopies(args, kwargs), compare.ArgumentCopies(args, kwargs)
        twice.random = compare.Randomness()
    except Exception as error:
        entry.skip(f"its arguments cannot be copied: {_said(error)}")
        return None
    try:
        twice.result = _on("original", entry.original, twice.copies.args, twice.copies.kwargs)
    except Exception as error:
        entry.skip(f"the original raises on copies of the arguments: {_said(error)}")
        return None
    finally:
        twice.random.restore()
    return twice


def _unable(describe, args, kwargs):
    for value in (*args, *kwargs.values()):
        if not describe.can_be_given(value):
            return f"an argument is a {type(value).__name__}"
    cuda = sys.modules["torch"].cuda
    emulated = "KERNEL_LSP_EMULATE" in os.environ
    if not emulated and cuda.is_available() and cuda.is_current_stream_capturing():
        return "within the capture of a CUDA graph"
    return ""


@_guarded
def _after(entry, twice, result, args, kwargs):
    entry.by_variant += 1
    if twice is None:
        return
    compare = _part("shadow_compare")
    given, wanted = list(compare.tensors_in(result, "")), list(compare.tensors_in(twice.result, ""))
    entry.compared += 1
    found = []
    if len(given) != len(wanted):
        why = f"returns {len(given)} tensors, not {len(wanted)}"
        found.append(dict(output="the result", why=why, wrong=1, units=None, allowed=0.0))
    else:
        pairs = enumerate(zip(given, wanted))  # noqa: B905 - of one length, and `strict` is not known to all Pythons
        found += [dict(output=f"output {i}", **compare.difference(a, e)) for i, ((_, a), (_, e)) in pairs]
    found += _changed(compare, entry, twice, args, kwargs)
    if not found:
        entry.skip("it returns no tensor and is given none")
    for one in found:
        one.update(function=entry.name, call=entry.calls)
        if STATE.worst is None or _excess(one) > _excess(STATE.worst):
            STATE.worst = one
    wrong = [one for one in found if one["wrong"]]
    entry.wrong += bool(wrong)
    if wrong and entry.wrong == 1:
        STATE.wrong.append(wrong[0])
    if wrong or entry.compared == 1:
        _write()


def _changed(compare, entry, twice, args, kwargs):
    """Return the differences of the arguments that either side changed."""
    names = _parameters(entry.original, args)
    live = dict(compare.tensors_in({**dict(zip(names, args)), **kwargs}, ""))  # noqa: B905
    sets = (twice.copies, twice.before)
    copy, before = (dict(compare.tensors_in({**dict(zip(names, s.args)), **s.kwargs}, "")) for s in sets)  # noqa: B905
    found = []
    for name, tensor in live.items():
        if not (compare.same(tensor, before[name]) and compare.same(copy[name], before[name])):
            found.append(dict(output=f"argument `{name}`", **compare.difference(tensor, copy[name])))
    return found


def _parameters(function, args):
    try:
        found = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        found = []
    return [found[i] if i < len(found) else f"argument {i}" for i in range(len(args))]


def _excess(one):
    if one["units"] is None:
        return float("inf") if one["wrong"] else 0.0
    return one["units"] / one["allowed"] if one["allowed"] else one["units"]


# What is written.


def _forked():
    """Count anew in a child: what its parent counted is its parent's."""
    STATE.process = os.getpid()
    STATE.outside, STATE.worst, STATE.wrong, STATE.steps.segments = {}, None, [], []
    for entry in STATE.functions.values():
        entry.clear()


@_guarded
def _write():
    with _lock:
        STATE.written = time.perf_counter()
        document = dict(
            program=os.path.basename(sys.argv[0] or "python"), seconds=STATE.written - STATE.began, why=STATE.why,
            functions=[one.document() for one in STATE.functions.values()], missing=STATE.missing,
            outside=STATE.outside, worst=STATE.worst, wrong=STATE.wrong, errors=STATE.errors, device=_device(),
            steps=STATE.steps.count, segments=STATE.steps.segments,
        )  # fmt: skip
        path = os.path.join(STATE.folder, f"{STATE.process}.shadow")
        with open(f"{path}.partial", "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(f"{path}.partial", f"{path}.json")


def _device():
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    there = cuda is not None and "KERNEL_LSP_EMULATE" not in os.environ and cuda.is_available()
    return cuda.get_device_name() if there and cuda.is_initialized() else ""
