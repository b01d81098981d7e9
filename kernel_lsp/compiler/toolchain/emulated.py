"""Chooses the architectures that a kernel is compiled for to run on the emulator."""

from collections.abc import Sequence
from dataclasses import replace

from kernel_lsp.device.architectures import arch_number
from kernel_lsp.device.device import Device, device_named

# For later ones compilers use tensor-core and copy instructions that the emulator does not know. If a kernel needs more
# than the first one has (usually 8-bit floats), the second may do.
_EMULATED = ("sm_80", "sm_89")
STANDS_IN = device_named(_EMULATED[0])
"""The GPU that is emulated if none is named."""


def emulated_devices(device: Device) -> tuple[Device, ...]:
    """Return the GPUs to try in turn for a kernel that is meant for `device`, which comes last.

    The others are copies of it with an older architecture, whose name they carry, since programs ask for names too.
    """
    older = [each for each in _EMULATED if arch_number(each) < arch_number(device.arch)]
    return (*(replace(device, name=each, arch=each) for each in older), device)


def program_gpu(architectures: Sequence[str]) -> str:
    """Return the name of the GPU that a whole program sees: the first of the setting `arch`, else `STANDS_IN`."""
    return architectures[0] if architectures else STANDS_IN.arch


def program_devices(name: str) -> tuple[Device, ...]:
    """Return the GPU of this name, and those to try in turn for kernels that it lacks something for."""
    if name == STANDS_IN.arch:
        return STANDS_IN, *emulated_devices(device_named("sm_90"))[1:]
    return (device_named(name),)
