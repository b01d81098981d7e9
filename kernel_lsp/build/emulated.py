"""Which architectures a kernel is compiled for where it is to be emulated."""

from kernel_lsp.build.occupancy import base_arch

# Of later ones the compilers use tensor-core and copy instructions that only a GPU can run. Where a kernel asks for
# more than the first has (8-bit floats, most often), the second may do.
_EMULATED = ("sm_80", "sm_89")


def emulated_archs(arch: str) -> tuple[str, ...]:
    """Architectures to try one after the other for a kernel that is meant for `arch`, which comes last."""
    return (*(each for each in _EMULATED if _number(each) < _number(arch)), arch)


def _number(arch: str) -> int:
    return int(base_arch(arch).removeprefix("sm_"))
