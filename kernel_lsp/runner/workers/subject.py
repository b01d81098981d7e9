"""The worker under test: holds one version of a kernel and runs it on request, on inputs it did not make.

It knows neither the reference nor the seed. The oracle writes inputs into this process's memory from outside and reads
the outputs from there.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.compiler.fakes.shortfall import shortfall
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.device.shared_buffer import SharedBuffer, give_back, make_buffer
from kernel_lsp.device.tensors import BufferHandle
from kernel_lsp.errors import KernelLspError
from kernel_lsp.runner.emulated import SampledRun
from kernel_lsp.runner.messages import subject as messages
from kernel_lsp.runner.messages.subject import SubjectRole
from kernel_lsp.runner.messages.subject_answers import (
    LaunchFile,
    Loaded,
    ProcessChanges,
    PublishedOutputs,
    Ran,
    Recorded,
    Segment,
    Stretch,
    Traced,
)
from kernel_lsp.runner.spans import MAKE_CONTEXT, WORKER
from kernel_lsp.runner.workers.allocations import WatchedAllocations
from kernel_lsp.runner.workers.ears import Ears
from kernel_lsp.runner.workers.inline import Launches, load_extension, serving
from kernel_lsp.runner.workers.input_buffer import InputBuffer
from kernel_lsp.runner.workers.outbox import Outbox
from kernel_lsp.runner.workers.outputs import HeldOutputs, places_of, plain_outputs
from kernel_lsp.runner.workers.surroundings import Surroundings
from kernel_lsp.workload.answer import Answer
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.load import bind_launch

if TYPE_CHECKING:
    from kernel_lsp.device.driver import Listener
    from kernel_lsp.runner.workers.emulator import Emulator
    from kernel_lsp.runner.workers.recording import Recording
    from kernel_lsp.runner.workers.stopwatch import Stopwatch


def methods(device: str, probes: bytes = b"", emulated: bytes = b"") -> SubjectRole:
    """Return the role.

    Args:
        device: `cuda`, or `cpu` where kernels are emulated.
        probes: the harness's own `Binary` as msgpack, needed for timing.
        emulated: the `Device` to emulate as msgpack, where not the default one.
    """
    return SubjectWorker(device, msgspec.msgpack.decode(probes, type=Binary) if probes else None, emulated)


class SubjectWorker:
    """The state of one worker under test; every public method answers a request of the parent."""

    def __init__(self, device: str, probes: Binary | None, emulated: bytes) -> None:
        self._device = device
        self._placement: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._emulator: Emulator | None = None
        self._launch: Callable[..., Any] | None = None
        self._answer: Answer | None = None
        self._launches: dict[str, Callable[..., Any]] = {}
        self._ears, self._cases = Ears(), dict[str, int]()
        self._listeners: list[Listener] = []
        self._path, self._triton = Path(), False
        self._buffers: dict[str, InputBuffer] = {}
        self._lasting = contextlib.ExitStack()  # contexts that last as long as this process
        self._retired: list[SharedBuffer] = []  # memory the oracle may still have open: CUDA wants it kept until then
        self._outbox = Outbox(device, self._retired)
        self._names, self._room = tuple[str, ...](), math.inf
        self._recordings: dict[str, Recording] = {}
        self._watch: Stopwatch | None = None
        self._surroundings: Surroundings | None = None
        self._new_threads: int | None = None
        if device == "cpu":
            self._emulator = _make_emulator(emulated)
            self._placement = self._emulator.placement
        else:
            with WORKER.span(MAKE_CONTEXT):
                torch.zeros(1, device="cuda")  # makes torch's context the current one
                self._room = torch.cuda.mem_get_info()[1]
            if probes is not None:
                from kernel_lsp.runner.workers.recording import warmed_stopwatch

                self._watch = warmed_stopwatch(probes)
        self._held = HeldOutputs(self._room)

    def load(self, request: messages.Load) -> Loaded:
        """Load a version."""
        self._surroundings = Surroundings(self._device)
        path = Path(request.path)
        self._path = Path(request.launch_path or request.path)
        self._triton = request.binary is None and path.suffix == ".py"
        if self._emulator is not None:
            self._emulator.expect(path, triton=self._triton)
        elif self._triton:
            self._ears.hear_triton()
        with self._placement():
            if request.binary is not None:
                module = self._load_binary(request.binary, request)
            elif not self._triton:
                module = load_extension(request.extensions[0], self._device_launches())
            else:
                self._lasting.enter_context(serving(request.extensions, self._device_launches()))
                if request.calls:
                    self._answer = Answer(request.text, path, request.calls, self._device)
                    return Loaded(self._answer.build(request.case))
                module = load_module(request.text, path)
            self._launch = bind_launch(module, path, request.launch_text, self._path)
        return Loaded()

    def _device_launches(self) -> Launches:
        if self._emulator is not None:
            from kernel_lsp.runner.workers.emulator import EmulatedLaunches

            return EmulatedLaunches(self._emulator)
        from kernel_lsp.runner.workers.inline_gpu import GpuLaunches

        return GpuLaunches(self._listeners, self._ears.launch)

    def _load_binary(self, binary: Binary, request: messages.Load) -> Any:
        if self._emulator is not None:
            return self._emulator.module(binary, request.types_of, request.names_of)
        from kernel_lsp.device.driver import LoadedModule

        return LoadedModule(binary, request.types_of, self._listeners, self._ears.launch)

    def bind(self, request: messages.Bind) -> BufferHandle:
        """Allocate buffers that lie one after another."""
        self._names = request.names
        for name in request.buffers:
            if (known := self._buffers.get(name)) is not None and known.memory not in self._retired:
                self._retired.append(known.memory)
        memory = make_buffer(request.nbytes * len(request.buffers), self._device)
        for number, name in enumerate(request.buffers):
            self._cases[name] = request.case
            self._buffers[name] = InputBuffer(memory, number * request.nbytes, request.nbytes, request.arguments)
            if self._answer is not None:
                with self._placement():
                    self._launches[name] = self._answer.launch(request.case)
        self._forget_recordings(request.buffers[0])  # they hold addresses of the old memory
        return memory.handle

    def _forget_recordings(self, buffer: str) -> None:
        for made in [made for made in self._recordings if messages.buffer_of(made) == buffer]:
            del self._recordings[made]

    def unbind(self, request: messages.Unbind) -> None:
        """Free buffers and the recordings on them."""
        for name in request.buffers:
            self._forget_recordings(name)
            self._launches.pop(name, None)
            self._buffers.pop(name, None)
        if self._answer is not None:
            self._answer.unbind()
        self._free_unused()

    def retire(self) -> None:
        """Free memory that the oracle has opened anew elsewhere."""
        self._retired.clear()
        self._free_unused()

    def rest(self) -> None:
        """Free all inputs and outputs and what was recorded on them."""
        self.unbind(messages.Unbind(buffers=tuple(self._buffers)))
        self._recordings.clear()
        self._held.forget()
        self._retired.clear()
        self._outbox.free()
        self._free_unused(whatever=True)

    def rehearse(self, request: messages.Rehearse) -> None:
        """Launch once for nothing."""
        with torch.no_grad():
            self._outputs(request.buffer)
        self._synchronize()

    def run(self, request: messages.Run) -> Ran:
        """Launch once with fences round all that is allocated, and publish the outputs."""
        watcher = WatchedAllocations(self._emulator, request.unset)
        if self._emulator is None:
            with torch.no_grad(), watcher:
                returned = self._call(request.buffer)
        else:
            returned = self._emulate(self._emulator, request, watcher)
        outputs = plain_outputs(returned, self._device, self._path)
        self._synchronize()
        held = self._held.add(outputs)
        places = places_of(outputs, self._buffers[request.buffer].data)
        return Ran(
            self._published(outputs),
            held,
            watcher.trampled(),
            tuple(place.text for place in places),
            any(place.in_inputs for place in places),
            self._emulator.report(watcher.computed) if self._emulator else None,
            self._answer.lacking(self._cases[request.buffer]) if self._answer is not None else (),
        )

    def _emulate(self, emulator: "Emulator", request: messages.Run, watcher: WatchedAllocations) -> Any:
        """Launch on the emulator; what fails there is tried for the next architecture, on inputs as they were."""
        buffer = self._buffers[request.buffer]
        pristine = buffer.data.clone()
        while True:
            emulator.begin(self._names, buffer.leaves)
            try:
                with torch.no_grad(), emulator.placement(), watcher, emulator.host_tensors:
                    return self._call(request.buffer)
            except KernelLspError:
                raise
            except Exception as error:
                if (why := shortfall(error)) is not None:
                    raise why from error
                if not emulator.grow():
                    raise
                buffer.data.copy_(pristine)

    def sample_blocks(self, request: messages.SampleBlocks) -> SampledRun:
        """Emulate a few blocks of each launch with its whole grid."""
        from kernel_lsp.emulate.sampling import BlockSample

        assert self._emulator is not None, "blocks are sampled without a GPU"
        leaves, most = self._buffers[request.buffer].leaves, request.instructions
        sample = BlockSample(request.count, request.seed, most, 4 * most)
        with torch.no_grad():
            return self._emulator.sample(self._names, leaves, sample, lambda: self._call(request.buffer))

    def forget(self) -> tuple[int, ...]:
        """Release outputs of earlier runs; name those whose memory something else still references."""
        return self._held.forget()

    def spoil(self) -> None:
        """Fill outputs of earlier runs with 0xFF."""
        self._held.spoil()
        self._synchronize()

    def publish_earlier(self, request: messages.PublishEarlier) -> PublishedOutputs:
        """Publish once more what an earlier run returned."""
        return self._published(self._held.earlier(request.back))

    def call_repeatedly(self, request: messages.CallRepeatedly) -> int:
        """Call `launch` so many times, wait for the GPU after each, and return how many launches were ours."""
        before = self._ears.ours
        with torch.no_grad():
            for _ in range(request.count):
                self._call(request.buffer)
                self._synchronize()
        return self._ears.ours - before

    def record(self, request: messages.RecordSegment) -> Recorded:
        """Make a segment ready for timing.

        Raises:
            NotCapturableError: see `Recording`; this process is of no further use then.
        """
        from kernel_lsp.runner.workers.recording import BufferLaunch, Recording

        assert self._watch is not None, "only who was given probes is timed"
        self._recordings.pop(request.recording, None)
        launches: list[BufferLaunch] = []
        with torch.no_grad():
            for name in request.buffers:
                buffer = self._buffers[name]
                if request.restores:
                    buffer.pristine = buffer.data.clone()
                restore = buffer.restore if request.restores else None
                launches.append(BufferLaunch(lambda name=name: self._outputs(name), buffer.data, restore))
            self._outputs(request.buffers[0])  # what compiles or allocates at first use has done so
            torch.cuda.synchronize()
            self._free_unused()  # a graph has memory of its own
            with self._ears.recording():
                poison, capture = request.poison, request.capture
                made = Recording(self._watch, launches, request.mode, request.salt, poison=poison, capture=capture)
            torch.cuda.synchronize()
        self._recordings[request.recording] = made
        return made.described()

    def refresh(self, request: messages.Refresh) -> None:
        """Take what now lies in buffers as the inputs that launches start from."""
        for buffer in (self._buffers[name] for name in request.buffers):
            if buffer.pristine is not None:
                buffer.pristine.copy_(buffer.data)
        self._synchronize()

    def run_segments(self, request: messages.RunSegments) -> tuple[Segment, ...]:
        """Run a recording so many times."""
        recording = self._recordings[request.recording]
        with torch.no_grad():
            return tuple(recording.segment(request.repeats) for _ in range(request.count))

    def publish(self, request: messages.Publish) -> PublishedOutputs:
        """Publish what one launch of the last segment computed."""
        return self._published(self._recordings[request.recording].outputs[request.launch])

    def sustain(self, request: messages.Sustain) -> Stretch:
        """Launch without pause for so many seconds."""
        from kernel_lsp.runner.workers.sustained_load import run_for

        assert self._watch is not None, "only who was given probes is timed"
        buffer = self._buffers[request.buffer]
        restore = buffer.restore if request.restores else None
        with torch.no_grad():
            self._free_unused()  # a graph has memory of its own
            with self._ears.recording():
                stretch = run_for(
                    self._watch,
                    lambda: self._outputs(request.buffer),
                    request.seconds,
                    request.launch_us,
                    restore=restore,
                    capture=request.capture,
                )
            self._free_unused()  # the other side's turn
        return stretch

    def trace(self, request: messages.TraceLaunch) -> Traced:
        """Trace one launch, between a kernel that spins and one that reads clocks."""
        from kernel_lsp.runner.workers.tracer import trace_launch

        assert self._watch is not None, "only who was given probes is traced"
        with torch.no_grad():
            traced, threads = trace_launch(self._watch, self._ears, lambda: self._outputs(request.buffer))
        if self._new_threads is None and self._surroundings is not None:  # the profiler has started some of its own
            self._new_threads = threads - self._surroundings.native_threads
        return replace(traced, threads=self._new_threads or 0)

    def trace_segment(self, request: messages.TraceSegment) -> Traced:
        """Trace one segment of a recording."""
        from kernel_lsp.runner.workers.tracer import trace

        with torch.no_grad():
            segment, operations, failed = trace(self._recordings[request.recording].segment)
        return Traced(operations, failed=failed, times=len(segment.checksums))

    def changes(self) -> ProcessChanges:
        """Say what the version has changed round itself since it was loaded."""
        assert self._surroundings is not None, "the parent loads a version first"
        changed = self._surroundings.changes()
        if not all(recording.intact for recording in self._recordings.values()):
            changed.append("the harness's stopwatch")
        return ProcessChanges(tuple(changed), tuple(self._surroundings.threads()))

    def record_launches(self, request: messages.RecordLaunches) -> LaunchFile:
        """Record the launches of a run on each of these buffers in a file."""
        from kernel_lsp.runner.workers.recorder import record_launches

        runs = [(self._buffers[name].leaves, lambda name=name: self._outputs(name)) for name in request.buffers]
        with torch.no_grad():
            return record_launches(runs, self._listeners, triton=self._triton)

    def ready(self) -> None:
        """Answer once the process is set up."""

    def _outputs(self, buffer: str) -> tuple[Tensor, ...]:
        return plain_outputs(self._call(buffer), self._device, self._path)

    def _call(self, buffer: str) -> Any:
        launch = self._launches.get(buffer, self._launch)
        assert launch is not None, "the parent loads a version first"
        with torch.set_grad_enabled(self._answer is None):  # reference code may use gradients
            return launch(*self._buffers[buffer].leaves)

    def _published(self, outputs: Sequence[Tensor]) -> PublishedOutputs:
        """Copy outputs to where the oracle can read them."""
        published = self._outbox.publish(outputs)
        self._synchronize()
        return published

    def _free_unused(self, *, whatever: bool = False) -> None:
        """Free cached memory as `give_back` does, if it is large."""
        if self._device != "cuda":
            return
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > policy.RELEASED_BYTES:
            give_back(whatever=whatever)

    def _synchronize(self) -> None:
        if self._device == "cuda":
            with WORKER.span("wait for the GPU", gpu=True):
                torch.cuda.synchronize()


def _make_emulator(device: bytes) -> "Emulator":
    from kernel_lsp.runner.workers.emulator import Emulator, read_device

    return Emulator(read_device(device))
