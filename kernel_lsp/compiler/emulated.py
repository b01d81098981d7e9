"""Which architectures a kernel is compiled for where it is to be emulated."""

from dataclasses import replace

from kernel_lsp.device.architectures import arch_number
from kernel_lsp.device.device import Device, device_named

# Of later ones the compilers use tensor-core and copy instructions that only a GPU can run. Where a kernel asks for
# more than the first has (8-bit floats, most often), the second may do.
_EMULATED = ("sm_80", "sm_89")
STANDS_IN = device_named(_EMULATED[0])
"""The GPU that is emulated where nobody says which one is meant."""


def emulated_devices(device: Device) -> tuple[Device, ...]:
    """Return GPUs to try one after the other for a kernel that is meant for `device`, which comes last.

    The others are like it, but of another architecture, after which they are called: programs ask for names, too.
    """
    older = [each for each in _EMULATED if arch_number(each) < arch_number(device.arch)]
    return (*(replace(device, name=each, arch=each) for each in older), device)
