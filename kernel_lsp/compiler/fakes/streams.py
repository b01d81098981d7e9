"""Streams, events and CUDA graphs of the fake GPU. Worker processes only.

Work on any stream is executed at once, in the order of the calls. While a graph is captured nothing is executed: a
dispatch mode keeps torch's operations, the launcher keeps launches (see `capturing`), and a replay executes all of it
on the memory it was captured with, as a GPU does.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernel_lsp.compiler.fakes.operations import Operations

_NOT_WHILE_CAPTURING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_WITHOUT_VALUES = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided")
_DEVICE = torch.device("cuda", 0)
_handles = itertools.count(1)


class Stream:
    """A stream that executes all work at once."""

    device = _DEVICE
    device_index = 0

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:
        self.cuda_stream = self.stream_id = next(_handles)
        self.priority = priority
        self._entered: list[Stream] = []

    def __enter__(self) -> "Stream":
        self._entered.append(_state.current)
        _state.current = self
        return self

    def __exit__(self, *_: object) -> None:
        _state.current = self._entered.pop()

    def synchronize(self) -> None:
        """Return at once."""

    def wait_stream(self, stream: "Stream") -> None:
        """Return at once."""

    def wait_event(self, event: "Event") -> None:
        """Return at once."""

    def query(self) -> bool:
        """Return True: all work is done."""
        return True

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Return an event that is recorded now."""
        made = event or Event()
        made.record(self)
        return made


class Event:
    """An event that completes as soon as it is recorded; it takes the host's time."""

    def __init__(self, *_: object, **__: object) -> None:
        self._recorded: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Record the current time."""
        self._recorded = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Return at once."""

    def synchronize(self) -> None:
        """Return at once."""

    def query(self) -> bool:
        """Return True: it has completed."""
        return True

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds from this event to another one.

        Raises:
            RuntimeError: one of them was not recorded.
        """
        if self._recorded is None or end._recorded is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return 1e3 * (end._recorded - self._recorded)


class Graph:
    """Work kept during capture, and executed at each replay."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._steps: list[Callable[[], object]] = []
        self._mode: _Captured | None = None

    def take(self, step: Callable[[], object]) -> None:
        """Keep a piece of work for replays."""
        self._steps.append(step)

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """Start capture: work is kept, not executed.

        Raises:
            RuntimeError: another graph is being captured.
        """
        if _state.captured is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self._steps.clear()
        self._mode = _Captured(self)
        self._mode.__enter__()
        _state.captured = self

    def capture_end(self) -> None:
        """End capture: work is executed again."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
        self._mode = _state.captured = None

    def replay(self) -> None:
        """Execute all work that was captured."""
        for step in self._steps:
            step()

    def reset(self) -> None:
        """Drop all work that was captured."""
        self._steps.clear()

    def instantiate(self) -> None:
        """Return at once."""

    def enable_debug_mode(self) -> None:
        """Return at once."""

    def pool(self) -> tuple[int, int]:
        """Return a handle for its memory pool."""
        return 0, id(self)


class GraphContext:
    """The context manager `torch.cuda.graph`: captures a graph on a stream of its own."""

    def __init__(
        self,
        cuda_graph: Graph,
        pool: object = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        self._graph, self._stream = cuda_graph, stream or Stream()

    def __enter__(self) -> None:
        self._stream.__enter__()
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()
        self._stream.__exit__()


class _State:
    """The current stream, and the graph being captured, if any."""

    def __init__(self) -> None:
        self.default = Stream()
        self.default.cuda_stream = self.default.stream_id = 0
        self.current = self.default
        self.captured: Graph | None = None


_state = _State()


def capturing() -> Graph | None:
    """Return the graph being captured; None if there is none. Launchers give it their launches."""
    return _state.captured


@contextlib.contextmanager
def streams() -> Generator[dict[str, Any]]:
    """Provide streams within the context; yields replacements for `torch.cuda` by name."""
    before, captured = _state.current, _state.captured
    _state.current = _state.default
    try:
        yield {
            "Stream": Stream,
            "ExternalStream": _external_stream,
            "Event": Event,
            "CUDAGraph": Graph,
            "graph": GraphContext,
            "graph_pool_handle": lambda: (0, 0),
            "make_graphed_callables": lambda callables, *_, **__: callables,
            "is_current_stream_capturing": lambda: _state.captured is not None,
            "current_stream": lambda *_: _state.current,
            "default_stream": lambda *_: _state.default,
            "set_stream": _set_stream,
            "stream": lambda stream: stream or contextlib.nullcontext(),
        }
    finally:
        if _state.captured is not captured and _state.captured is not None:
            _state.captured.capture_end()
        _state.current = before


def _external_stream(stream_ptr: int, device: object = None, **_: object) -> Stream:
    made = Stream()
    made.cuda_stream = made.stream_id = stream_ptr
    return made


def _set_stream(stream: Stream) -> None:
    _state.current = stream


class _Captured(Operations):
    """Keeps torch's operations for a graph; their results are uninitialised memory until a replay."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph

    def operation(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Keep the operation for the graph and return memory for its result."""
        if not _NOT_WHILE_CAPTURING.isdisjoint(func.tags):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        aliases = [argument.alias_info for argument in func._schema.arguments if argument.alias_info is not None]
        if any(alias.is_write for alias in aliases):
            self._graph.take(lambda: func(*args, **named))
            return written(func, args, named)
        if aliases or func.overloadpacket.__name__ in _WITHOUT_VALUES:  # a view
            return func(*args, **named)
        made = _uncomputed(func, args, named)

        def compute() -> None:
            for old, new in zip(tree_leaves(made), tree_leaves(func(*args, **named)), strict=True):
                if isinstance(old, torch.Tensor):
                    old.copy_(new)

        self._graph.take(compute)
        return made


def _uncomputed(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Return memory for an operation's results; execute it only if their shapes cannot be inferred."""
    if not any(isinstance(value, torch.Tensor) for value in tree_leaves((args, named))):
        return func(*args, **named)
    try:
        shapes = func(*tree_map(_shape, args), **tree_map(_shape, named))
    except (NotImplementedError, RuntimeError):
        return func(*args, **named)
    return tree_map(_memory, shapes)


def _shape(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _memory(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")


def written(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return what an in-place operation returns, without executing it: the arguments it writes to."""
    given = [
        named.get(argument.name, args[place] if place < len(args) else None)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    returned = len(func._schema.returns)
    return given[0] if returned == 1 else tuple(given[:returned])
