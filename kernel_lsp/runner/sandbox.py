"""Confine a worker by means of Linux: Landlock for files, seccomp for system calls, and resource limits.

`confine` runs in a forked worker before any of the user's code. It cannot be undone, and whatever the worker starts
inherits it. Protections that this Linux kernel lacks are left out; the answer says what is in force, for the evidence.

Sources: linux/landlock.h and linux/seccomp.h, the manual pages landlock(7) and seccomp(2).
"""

import ctypes
import os
import platform
import resource
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypedDict

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

# --- Landlock ---
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every machine
_LANDLOCK_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 3  # bind, connect
_SCOPE_SIGNALS = 2

# --- seccomp ---
_AUDIT_NUMBERS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000  # larger numbers belong to the x32 table on x86_64
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_AF_UNIX = 1
_NAMESPACES = 0x7E020080  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME
_SYSTEM_CALLS: dict[str, dict[str, int]] = {
    # Looking into or acting on other processes
    "ptrace": {"x86_64": 101, "aarch64": 117},
    "process_vm_readv": {"x86_64": 310, "aarch64": 270},
    "process_vm_writev": {"x86_64": 311, "aarch64": 271},
    "pidfd_getfd": {"x86_64": 438, "aarch64": 438},
    "kcmp": {"x86_64": 312, "aarch64": 272},
    # Leaving the session, by which its processes are found and killed
    "setsid": {"x86_64": 112, "aarch64": 157},
    # Changing the view of the system
    "unshare": {"x86_64": 272, "aarch64": 97},
    "setns": {"x86_64": 308, "aarch64": 268},
    "mount": {"x86_64": 165, "aarch64": 40},
    "umount2": {"x86_64": 166, "aarch64": 39},
    "pivot_root": {"x86_64": 155, "aarch64": 41},
    "chroot": {"x86_64": 161, "aarch64": 51},
    # Rarely needed parts of Linux that have had exploitable bugs
    "bpf": {"x86_64": 321, "aarch64": 280},
    "userfaultfd": {"x86_64": 323, "aarch64": 282},
    "io_uring_setup": {"x86_64": 425, "aarch64": 425},
    "keyctl": {"x86_64": 250, "aarch64": 219},
    "add_key": {"x86_64": 248, "aarch64": 217},
    "request_key": {"x86_64": 249, "aarch64": 218},
    "kexec_load": {"x86_64": 246, "aarch64": 104},
    "init_module": {"x86_64": 175, "aarch64": 105},
    "finit_module": {"x86_64": 313, "aarch64": 273},
}
_FORKS = {"fork": {"x86_64": 57}, "vfork": {"x86_64": 58}}  # newer machines have clone alone
_THREAD = 0x10000  # CLONE_THREAD
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = {"x86_64": 435, "aarch64": 435}

Protection = Literal["files", "signals", "network", "system calls", "processes", "limits"]


class Confinement(TypedDict):
    """The permissions of one worker.

    `read` and `write` are files and folders with all their contents; `read=None` leaves files unconfined. `processes`
    allows starting processes. `limits` maps names of `resource` limits to values.
    """

    read: list[str] | None
    write: list[str]
    processes: bool
    limits: dict[str, int]


def confine(allowed: Confinement) -> list[Protection]:
    """Confine this process for good, and return the protections in force."""
    active: list[Protection] = ["limits"]
    for name, value in allowed["limits"].items():
        limit = getattr(resource, name)
        resource.setrlimit(limit, (value, min(value, resource.getrlimit(limit)[1])))
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return active
    if allowed["read"] is not None:
        active += _confine_files(allowed["read"], allowed["write"])
    if _filter_system_calls(processes=allowed["processes"]):
        active.extend(("network", "system calls"))
        if not allowed["processes"]:
            active.append("processes")
    return active


def is_confined(process: int) -> bool:
    """Return True if a process has given up privileges for good, as workers have, or if that is unknown."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return True
    return "\nNoNewPrivs:\t0\n" not in status


def landlock_version() -> int:
    """Return the version of Landlock's interface in this Linux kernel; 0 if it has none."""
    return max(0, _LIBC.syscall(_CREATE_RULESET, 0, 0, _LANDLOCK_VERSION))


def _confine_files(read: Iterable[str], write: Iterable[str]) -> list[Protection]:
    version = landlock_version()
    if version == 0:
        return []
    handled = max(bits for since, bits in _FS_BY_ABI.items() if since <= version)
    attributes = struct.pack("=Q", handled)
    if version >= 4:
        attributes += struct.pack("=Q", _TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPE_SIGNALS)
    rules = _LIBC.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        return []
    try:
        for paths, access in ((read, _READ), (write, handled)):
            for path in paths:
                _allow(rules, path, access & handled)
        if _LIBC.syscall(_RESTRICT_SELF, rules, 0) != 0:
            return []
    finally:
        os.close(rules)
    return ["files", "signals"] if version >= 6 else ["files"]


def _allow(rules: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a missing file needs no permission
    try:
        if not Path(path).is_dir():
            access &= _OF_FILES
        _LIBC.syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", access, place), 0)
    finally:
        os.close(place)


def _filter_system_calls(*, processes: bool) -> bool:
    machine = platform.machine()
    if machine not in _AUDIT_NUMBERS:
        return False
    program = _program(machine, processes=processes)
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HL", len(program) // 8, ctypes.addressof(instructions))
    return _LIBC.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0


def _program(machine: str, *, processes: bool) -> bytes:
    """Return the filter as classic BPF on `struct seccomp_data`: number, architecture, instruction pointer, arguments.

    Without `processes`, only threads can be started.
    """
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    number, architecture, first_argument = 0, 4, 16

    def op(code: int, k: int, true: int = 0, false: int = 0) -> bytes:
        return struct.pack("HBBI", code, true, false, k)

    def refuse(error: int) -> bytes:
        return op(answer, _ERRNO | error)

    steps = [op(load, architecture), op(equal, _AUDIT_NUMBERS[machine], 1), refuse(_EPERM), op(load, number)]
    if machine == "x86_64":
        steps += [op(at_least, _X32, 0, 1), refuse(_ENOSYS)]
    for numbers in _SYSTEM_CALLS.values():
        steps += [op(equal, numbers[machine], 0, 1), refuse(_EPERM)]
    for numbers in () if processes else _FORKS.values():
        if machine in numbers:
            steps += [op(equal, numbers[machine], 0, 1), refuse(_EPERM)]
    # If clone3 does not exist the C library uses clone, whose flags a filter can read.
    steps += [op(equal, _CLONE3[machine], 0, 1), refuse(_ENOSYS)]
    flags = [op(any_bit, _NAMESPACES, 0, 1), refuse(_EPERM)]
    if not processes:
        flags += [op(any_bit, _THREAD, 1), refuse(_EPERM)]
    flags.append(op(answer, _ALLOW))
    steps += [op(equal, _CLONE[machine], 0, 1 + len(flags)), op(load, first_argument), *flags]
    steps += [op(equal, _SOCKET[machine], 0, 3), op(load, first_argument), op(equal, _AF_UNIX, 1), refuse(_EPERM)]
    return b"".join([*steps, op(answer, _ALLOW)])
