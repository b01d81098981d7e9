"""Hooks in Triton and torch.compile that report kernels and launches to the recorder. See `recorder.py`."""

import atexit
import functools

import _kernel_lsp_events as events
import _kernel_lsp_recorder as recorder
import _kernel_lsp_seen as seen


def _around(original):
    @functools.wraps(original)
    def run(self, *args, **kwargs):
        if seen.LOCAL.here.tuning or kwargs.get("warmup"):
            return original(self, *args, **kwargs)
        alone = recorder.launched(self, args, kwargs)
        begun = events.begin(self) if events.ON else None
        returned = original(self, *args, **kwargs)
        if begun is not None:
            events.end(begun)
        if alone is not None:
            recorder.landed(alone)
        return returned

    return run


def _after_init(original):
    @functools.wraps(original)
    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        recorder.defined(self)

    return init


def _tuning(original):
    @functools.wraps(original)
    def bench(self, *args, **kwargs):
        here = seen.LOCAL.here
        here.tuning += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            here.tuning -= 1

    return bench


def _hook(cls):
    cls.run = _around(cls.run)
    cls.__init__ = _after_init(cls.__init__)


_once = []


def _start():
    if _once:
        return
    _once.append(True)
    atexit.register(recorder.at_end)


def watch_functions(module):
    """Watch `triton.runtime.jit`."""
    _start()
    _hook(module.JITFunction)


def watch_interpreter(module):
    """Watch `triton.runtime.interpreter`."""
    _start()
    _hook(module.InterpretedFunction)


def watch_autotuner(module):
    """Ignore the launches with which the autotuner tries its configurations."""
    module.Autotuner._bench = _tuning(module.Autotuner._bench)


def watch_generated(module):
    """Count the kernels that torch.compile wrote, and ignore its own trials."""
    cls = module.CachingAutotuner
    cls.bench = _tuning(cls.bench)
    original = cls.run

    @functools.wraps(original)
    def run(self, *args, **kwargs):
        if not seen.LOCAL.here.tuning:
            recorder.generated(self)
        return original(self, *args, **kwargs)

    cls.run = run
    _start()
