"""The properties of GPUs: a table of common ones by name; the driver gives those of others.

Sources, one for each row of the table: NVIDIA's architecture whitepapers (Turing, A100, GA102, Ada, H100, RTX
Blackwell) and data sheets; if these omit the number of multiprocessors, CUDA cores over cores per multiprocessor.
"""

import re
from dataclasses import dataclass, replace

from kernel_lsp.device.architectures import ARCHITECTURES, Architecture, arch_number, base_arch, nearest_arch
from kernel_lsp.device.nvml import Gpu

DEFAULT_ARCH = "sm_90"
"""Target architecture without a GPU and without a setting."""
_GIB, _MIB, _GB = 1 << 30, 1 << 20, 10**9
_MAKERS = re.compile(r"^(nvidia|geforce|tesla|quadro|rtx)+")
_TARGET = re.compile(r"sm_\d{2,3}[af]?")
_NEARLY_TARGET = re.compile(r"(?:sm|compute)?[-_ ]?(\d{2,3}[af]?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of GPU.

    Attributes:
        name: common name, or the driver's.
        arch: compilation target, `sm_90` or `sm_90a`.
        multiprocessors: their number.
        memory_bytes: its whole memory.
        l2_bytes: L2 cache; 0 if not public, as CUDA reports it.
        bandwidth: theoretical memory bandwidth, bytes per second.
        bus_bits: width of the memory bus.
        clock_mhz: highest clock of the multiprocessors.
        assumed: nobody chose it, as there is neither a GPU nor a setting.
    """

    name: str
    arch: str
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    bandwidth: int
    bus_bits: int
    clock_mhz: int
    assumed: bool = False

    @property
    def limits(self) -> Architecture:
        """Return the limits of its architecture, or of the nearest older one in the table."""
        return ARCHITECTURES[nearest_arch(self.arch)]

    @property
    def capability(self) -> tuple[int, int]:
        """Return the compute capability, (9, 0) for `sm_90a`."""
        return divmod(arch_number(self.arch), 10)


DEVICES: tuple[Device, ...] = (
    Device("T4", "sm_75", 40, 16 * _GIB, 4 * _MIB, 320 * _GB, 256, 1590),  # data sheet
    Device("RTX 2080 Ti", "sm_75", 68, 11 * _GIB, 5632 << 10, 616 * _GB, 352, 1635),  # Turing whitepaper
    Device("A100", "sm_80", 108, 40 * _GIB, 40 * _MIB, 1555 * _GB, 5120, 1410),  # A100 whitepaper
    Device("A100 80GB", "sm_80", 108, 80 * _GIB, 40 * _MIB, 2039 * _GB, 5120, 1410),  # data sheet, SXM
    Device("A30", "sm_80", 56, 24 * _GIB, 24 * _MIB, 933 * _GB, 3072, 1440),  # data sheet
    Device("RTX 3090", "sm_86", 82, 24 * _GIB, 6 * _MIB, 936 * _GB, 384, 1695),  # GA102 whitepaper
    Device("RTX 3080", "sm_86", 68, 10 * _GIB, 5 * _MIB, 760 * _GB, 320, 1710),  # GA102 whitepaper
    Device("RTX A6000", "sm_86", 84, 48 * _GIB, 6 * _MIB, 768 * _GB, 384, 1800),  # GA102 whitepaper
    Device("A10", "sm_86", 72, 24 * _GIB, 6 * _MIB, 600 * _GB, 384, 1695),  # data sheet
    Device("A40", "sm_86", 84, 48 * _GIB, 6 * _MIB, 696 * _GB, 384, 1740),  # GA102 whitepaper
    Device("Jetson AGX Orin", "sm_87", 16, 64 * _GIB, 4 * _MIB, 205 * _GB, 256, 1300),  # Orin's technical brief
    Device("RTX 4090", "sm_89", 128, 24 * _GIB, 72 * _MIB, 1008 * _GB, 384, 2520),  # Ada whitepaper
    Device("RTX 4080", "sm_89", 76, 16 * _GIB, 64 * _MIB, 717 * _GB, 256, 2505),  # Ada whitepaper
    Device("RTX 6000 Ada", "sm_89", 142, 48 * _GIB, 96 * _MIB, 960 * _GB, 384, 2505),  # data sheet
    Device("L4", "sm_89", 58, 24 * _GIB, 48 * _MIB, 300 * _GB, 192, 2040),  # data sheet
    Device("L40", "sm_89", 142, 48 * _GIB, 96 * _MIB, 864 * _GB, 384, 2490),  # data sheet
    Device("L40S", "sm_89", 142, 48 * _GIB, 96 * _MIB, 864 * _GB, 384, 2520),  # data sheet
    Device("H100", "sm_90", 132, 80 * _GIB, 50 * _MIB, 3350 * _GB, 5120, 1980),  # H100 whitepaper, SXM5
    Device("H100 PCIe", "sm_90", 114, 80 * _GIB, 50 * _MIB, 2000 * _GB, 5120, 1755),  # H100 whitepaper
    Device("H200", "sm_90", 132, 141 * _GIB, 50 * _MIB, 4800 * _GB, 6144, 1980),  # data sheet
    Device("B200", "sm_100", 148, 180 * _GIB, 126 * _MIB, 8000 * _GB, 8192, 1965),  # data sheet; L2: tuning guide
    Device("RTX 5090", "sm_120", 170, 32 * _GIB, 96 * _MIB, 1792 * _GB, 512, 2407),  # RTX Blackwell whitepaper
    Device("RTX 5080", "sm_120", 84, 16 * _GIB, 64 * _MIB, 960 * _GB, 256, 2617),  # RTX Blackwell whitepaper
    Device("RTX PRO 6000", "sm_120", 188, 96 * _GIB, 128 * _MIB, 1792 * _GB, 512, 2617),  # RTX PRO whitepaper
)
"""By architecture; the first of each is taken if only the architecture is known."""


def device_named(name: str) -> Device:
    """Return the GPU of a name: one of the table (`A100`, `rtx-4090`) or an architecture (`sm_90a`).

    An architecture gives its first GPU in the table. If it has none, its limits are its own, and the other properties
    those of the first GPU of the nearest older one.

    Raises:
        ValueError: the name is unknown; the message lists the known ones, or says how it is written.
    """
    if _TARGET.fullmatch(name) and base_arch(name) in ARCHITECTURES:
        return _usual(name)
    for device in DEVICES:
        if _plain(device.name) == _plain(name):
            return device
    nearly = _NEARLY_TARGET.fullmatch(name)
    if nearly and base_arch(meant := f"sm_{nearly[1].lower()}") in ARCHITECTURES:
        raise ValueError(f"`{name}` is not how architectures are written; did you mean `{meant}`?")
    raise ValueError(
        f"`{name}` is neither an architecture ({', '.join(ARCHITECTURES)}) "
        f"nor a known GPU ({', '.join(device.name for device in DEVICES)})"
    )


def device_of(gpu: Gpu, arch: str | None = None) -> Device:
    """Return the properties of a GPU of this machine: from the driver, else from the table.

    Args:
        gpu: the GPU.
        arch: the compilation target, if not the GPU's plain architecture.
    """
    like = [d for d in DEVICES if base_arch(d.arch) == gpu.arch and _plain(gpu.name).startswith(_plain(d.name))]
    if gpu.multiprocessors is not None:  # a laptop version or a partition has the same name and fewer multiprocessors
        like = [d for d in like if d.multiprocessors == gpu.multiprocessors]
    base = max(like, key=lambda device: len(device.name), default=_usual(gpu.arch))
    count = gpu.multiprocessors or base.multiprocessors
    return replace(base, name=gpu.name, arch=arch or gpu.arch, multiprocessors=count, memory_bytes=gpu.memory_bytes)


def _usual(arch: str) -> Device:
    known = [device.arch for device in DEVICES]
    older = [one for one in known if arch_number(one) <= arch_number(arch)]
    nearest = max(older, key=arch_number) if older else min(known, key=arch_number)
    first = next(device for device in DEVICES if device.arch == nearest)
    return replace(first, name=first.name if nearest == base_arch(arch) else arch, arch=arch)


def _plain(name: str) -> str:
    """Return a name in lower case without makers, families, spaces and dashes."""
    return _MAKERS.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))
