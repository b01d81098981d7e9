"""How much memory this machine has, apart from its GPUs'."""

from pathlib import Path


def host_memory() -> tuple[int, int]:
    """Return the whole memory of this machine and what processes can still have of it, bytes."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kib = {name: int(count) for name, count, *_ in lines}
    return kib["MemTotal:"] << 10, kib["MemAvailable:"] << 10
