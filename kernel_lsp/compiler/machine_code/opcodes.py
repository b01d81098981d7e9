"""Classifies machine instructions by opcode; the names are those of "CUDA Binary Utilities", instruction sets."""

import re
from enum import StrEnum

_WIDTH = re.compile(r"\.[SU]?(8|16|64|128|256)\b")
_SIZED = frozenset({"LDG", "STG", "LDS", "STS", "LDL", "STL", "LD", "ST", "LDGSTS"})


class Role(StrEnum):
    """The kind of work an instruction does, where that matters for speed."""

    GLOBAL = "global memory"
    SHARED = "shared memory"
    LOCAL = "local memory"
    TENSOR = "tensor cores"
    ATOMIC = "atomics"
    BARRIER = "barriers"
    SHUFFLE = "shuffles and votes"
    SPECIAL = "special functions"


_ROLES = {
    Role.GLOBAL: "LD LDG LDGSTS ST STG UBLKCP UBLKPF UTMALDG UTMALST UTMAPF UTMASTG",
    Role.SHARED: "LDS LDSM LDT LDTM STS STSM STT STTM",
    Role.LOCAL: "LDL STL",
    Role.TENSOR: "BGMMA BMMA DMMA HGMMA HMMA IGMMA IMMA OMMA QGMMA QMMA UTCBMMA UTCHMMA UTCIMMA UTCOMMA UTCQMMA",
    Role.ATOMIC: "ATOM ATOMG ATOMS RED REDAS REDG UBLKRED UTMAREDG",
    Role.BARRIER: "ARRIVES B2R BAR DEPBAR LDGDEPBAR MEMBAR R2B SYNCS UCGABAR_ARV UCGABAR_WAIT WARPGROUP WARPSYNC",
    Role.SHUFFLE: "CREDUX MATCH REDUX SHFL VOTE VOTEU",
    Role.SPECIAL: "MUFU",
}
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names.split()}


def role_of(opcode: str) -> Role | None:
    """Return the role of an opcode with its modifiers; None for plain arithmetic, moves and branches."""
    return _ROLE_OF.get(opcode.partition(".")[0])


def kind_of(opcode: str) -> str:
    """Return an opcode's short name: `LDG.128` (width in bits) for loads and stores, else without modifiers."""
    base = opcode.partition(".")[0]
    if base not in _SIZED:
        return base
    width = _WIDTH.search(opcode)
    return f"{base}.{width[1] if width else 32}"
