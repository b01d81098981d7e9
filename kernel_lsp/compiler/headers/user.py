"""Finds and reads the user's own headers, without a compiler."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.compiler.headers.prelude import ATEN_HEADER, DEVICE_HEADER, HALF_HEADER, MATH_FUNCTIONS
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.slicing import device_slice, find_device_macros, words_of

_TORCH = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<](?:torch|ATen|c10)/', re.MULTILINE)
# Host headers that, as PyTorch's, also include CUDA's 16-bit float types, which device code then uses.
_BRINGS_HALVES = re.compile(rf'{_TORCH.pattern}|^[ \t]*#[ \t]*include[ \t]*["<](?:cublas\w*\.h|nccl\.h)', re.MULTILINE)
_DRIVER = re.compile(r"\bCU[a-z]\w+")
_BRINGS_DRIVER = re.compile(rf'{_TORCH.pattern}|^[ \t]*#[ \t]*include[ \t]*["<]cudaTypedefs\.h', re.MULTILINE)
# What `cuda_runtime.h` declares in device code, and what most headers of C++'s library bring.
_BROUGHT_BY_USE = (
    (
        "cuda_device_runtime_api.h",
        re.compile(r"\bcuda(?:GridDependencySynchronize|TriggerProgrammaticLaunchCompletion)\b"),
    ),
    (
        "type_traits",
        re.compile(
            r"\bstd::(?:is_\w+|(?:add|make|remove)_\w+|aligned_storage|bool_constant|common_type|conditional|decay"
            r"|enable_if|false_type|integral_constant|invoke_result|true_type|underlying_type|void)(?:_[tv])?\b"
        ),
    ),
    ("algorithm", re.compile(r"\bstd::(?:min|max|clamp)\b")),
    ("array", re.compile(r"\bstd::array\b")),
    ("cmath", re.compile(rf"\bstd::(?:{'|'.join(MATH_FUNCTIONS)})\b")),
    ("functional", re.compile(r"\bstd::(?:plus|minus|multiplies|divides|less|greater|equal_to)\b")),
    ("limits", re.compile(r"\bstd::numeric_limits\b")),
    ("tuple", re.compile(r"\bstd::(?:make_tuple|tie|tuple\w*)\b")),
    (
        "utility",
        re.compile(r"\bstd::(?:declval|forward|make_pair|move|pair|swap|(?:make_)?in(?:dex|teger)_sequence\w*)\b"),
    ),
)
_OF_ATEN = re.compile(r"\bat::(?:acc_type|ceil_div|numeric_limits|opmath_type)\b")
_OF_DEVICE = re.compile(
    r"\b(?:C10_(?:DEVICE|HOST_DEVICE|LAUNCH_BOUNDS_[012]|WARP_SIZE)|CUDA_KERNEL_(?:ASSERT|LOOP(?:_TYPE)?)|ACTIVE_MASK"
    r"|WARP_(?:BALLOT|SHFL(?:_XOR|_UP|_DOWN)?|SYNC)|gpuAtomicAdd(?:NoReturn)?)\b"
)
_DEFINES_ONE = re.compile(
    rf"#[ \t]*define[ \t]+{_OF_DEVICE.pattern}|[\w>*&][ \t\n]+{_OF_DEVICE.pattern}\([^()]*\)\s*\{{"
)
_CUB = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]cub/cub\.cuh', re.MULTILINE)
_COLLECTIVE = re.compile(
    r"\b(Block|Warp)(AdjacentDifference|Discontinuity|Exchange|Histogram|Load|MergeSort|RadixRank|RadixSort|Reduce|Scan"
    r"|Shuffle|Store)\b"
)
_CAPITAL = re.compile(r"[A-Z]")
_FOR_NVRTC = "__CUDACC_RTC__"
_STANDARD = re.compile(
    r"[a-z_]+|(?:assert|complex|ctype|errno|inttypes|limits|math|stdarg|stdint|stdio|stdlib|string|time)\.h"
)
_BROUGHT_BY_TORCH = ("array", "functional", "stdexcept", "string", "tuple", "type_traits", "utility", "vector")
_HALF = re.compile(r"\b(?:__half|half)2?\b|\b(?:__)?nv_bfloat16")
TORCH_HALF = re.compile(r"\b(?:c10|at|torch)::(?:Half|BFloat16)\b")
_OF_C = re.compile(  # and of POSIX
    r"(?:assert|complex|ctype|errno|fenv|float|inttypes|limits|locale|math|setjmp|signal|std\w+|string|strings|time"
    r"|dirent|dlfcn|fcntl|getopt|glob|libgen|malloc|memory|omp|poll|pthread|regex|sched|semaphore|syslog|unistd|wchar)\.h"
)
_OF_CUDA = re.compile(r"(?:cuda|cudaTypedefs|cuda_\w+|vector_types|driver_types|device_\w+|math_\w+)\.h")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UserHeader:
    """A header of the user's own, under the name in the `#include`."""

    name: str
    path: Path
    text: str


def user_headers(source: SourceFile, folders: Sequence[Path] = ()) -> tuple[UserHeader, ...]:
    """Return all headers that `source` includes, directly or not, from the includer's folder, the folder of `source` or
    one of `folders`.

    Headers of the toolkit and the host are left out: the compiler's version identifies them.
    """
    found: dict[tuple[str, Path], UserHeader] = {}
    pending = [(source.path.parent, told_apart(source.text, source.path.parent))]
    while pending:
        folder, text = pending.pop()
        for name, quoted in includes_of(text):
            path = resolve(name, source, folders, folder if quoted else None)
            if path is None or (name, path) in found:
                continue
            try:
                content = told_apart(path.read_text(encoding="utf-8", errors="replace"), path.parent)
            except OSError:
                continue  # the compiler will report it at the right line
            found[name, path] = UserHeader(name, path, content)
            pending.append((path.parent, content))
    return tuple(sorted(found.values(), key=lambda header: (header.name, header.path)))


def told_apart(text: str, folder: Path) -> str:
    """Return a text that includes as `"./math.h"` what lies beside it under the name of a header of C's or CUDA's.

    NVRTC knows the headers that it is given by their names, wherever they are included from.
    """

    def renamed(include: re.Match[str]) -> str:
        name = include[1]
        if not name or not is_of_system(name) or not (folder / name).is_file():
            return include[0]
        return include[0].replace(f'"{name}"', f'"./{name}"')

    return INCLUDE.sub(renamed, text)


def is_of_system(name: str, *, quoted: bool = False) -> bool:
    """Return True if a header of the CUDA runtime's has this name, or one of C's or POSIX' unless it is in quotes."""
    return _OF_CUDA.fullmatch(name) is not None or (not quoted and _OF_C.fullmatch(name) is not None)


def sliced_headers(
    headers: Sequence[UserHeader], sliced: str, asked: frozenset[bytes] = frozenset()
) -> tuple[UserHeader, ...]:
    """Return `headers` with host code blanked, but for what the device code of others, and of `sliced`, mentions, or
    the template instances `asked` for.
    """
    macros = find_device_macros((sliced, *(header.text for header in headers)))
    found = [device_slice(header.text, device_macros=macros, asked=asked) for header in headers]
    kept = [frozenset[bytes]()] * len(headers)
    fresh = words_of(sliced).union(*(words_of(cut.text) for cut in found))
    while fresh:
        wanted = [cut.wanted(fresh) for cut in found]
        fresh = frozenset()
        for at, names in enumerate(wanted):
            if names:
                kept[at] |= names
                found[at] = device_slice(headers[at].text, kept[at], macros, asked=asked)
                fresh |= words_of(found[at].text)
    return tuple(replace(header, text=cut.text) for header, cut in zip(headers, found, strict=True))


def of_libraries(headers: Sequence[UserHeader], file: Path) -> frozenset[Path]:
    """Return the headers of libraries for device code, as CUTLASS: named by a folder, `cute/tensor.hpp`, that does not
    hold `file` and of which a header knows NVRTC.
    """
    folders: dict[Path, list[UserHeader]] = {}
    for header in headers:
        parts = Path(header.name).parts
        if len(parts) > 1 and header.path.parts[-len(parts) :] == parts:
            folders.setdefault(header.path.parents[len(parts) - 2], []).append(header)
    known = {folder for folder, own in folders.items() if any(_FOR_NVRTC in header.text for header in own)}
    whole = [folder for folder in known if not file.resolve().is_relative_to(folder)]
    return frozenset(one.path for one in headers if any(one.path.is_relative_to(folder) for folder in whole))


def by_name(headers: Sequence[UserHeader]) -> tuple[UserHeader, ...]:
    """Return `headers` for a compiler that knows them by their names alone.

    There are none if a name stands for two files, which only the file system can tell apart. A file that is included by
    several names has its text under its whole path, for `#pragma once` to see, and so has one whose name says where it
    lies from the including file: NVRTC follows `..` in names from the working directory, and crashes above the root.
    """
    if len({header.name for header in headers}) < len(headers):
        return ()
    names = Counter(header.path for header in headers)
    found: dict[str, UserHeader] = {}
    for header in headers:
        whole = str(header.path)
        relative = _is_relative(header.name)
        if relative or names[header.path] > 1:
            text = with_whole_paths(header.text, header.path.parent)
            found[whole] = UserHeader(whole, header.path, text)
            if not relative:
                found[header.name] = UserHeader(header.name, header.path, f'#include "{whole}"\n')
        else:
            found[header.name] = replace(header, text=with_whole_paths(header.text, header.path.parent))
    return tuple(found.values())


def with_whole_paths(text: str, folder: Path) -> str:
    """Return a text that includes by their whole paths the files that it names by `./` or `../`, from its folder."""

    def whole(include: re.Match[str]) -> str:
        name = include[1]
        if not name or not _is_relative(name) or not (folder / name).is_file():
            return include[0]
        return include[0].replace(f'"{name}"', f'"{(folder / name).resolve()}"')

    return INCLUDE.sub(whole, text)


def _is_relative(name: str) -> bool:
    return name.startswith("./") or ".." in Path(name).parts


def headers_brought(texts: Sequence[str], names: Sequence[str] = (), device: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the headers for what code uses and gets through host headers: 16-bit floats, the driver's types, device
    functions of the runtime, what is common of C++'s library.

    PyTorch's types, macros and functions are those of `prelude.OWN_FILES`.

    Args:
        texts: the user's file and headers.
        names: names of instances.
        device: the device code of `texts`.
    """
    used = [header for header, use in _BROUGHT_BY_USE if any(map(use.search, device))]
    if any(map(_DRIVER.search, texts)) and any(map(_BRINGS_DRIVER.search, texts)):
        used.append("cuda.h")
    if includes_torch(texts):
        if any(map(_OF_ATEN.search, (*device, *names))):
            used.append(ATEN_HEADER)
        if any(map(_OF_DEVICE.search, device)) and not any(map(_DEFINES_ONE.search, texts)):
            used.append(DEVICE_HEADER)
        if any(map(TORCH_HALF.search, (*texts, *names))):
            return HALF_HEADER, *used
    if any(map(_HALF.search, texts)) and any(map(_BRINGS_HALVES.search, texts)):
        return "cuda_fp16.h", "cuda_bf16.h", *used
    return tuple(used)


def cub_header(texts: Sequence[str]) -> UserHeader | None:
    """Return what stands for `cub/cub.cuh`, which NVRTC refuses: those of its headers whose names the texts mention.

    None where no text includes it.
    """
    if not any(_CUB.search(text) for text in texts):
        return None
    parts = sorted({found for text in texts for found in _COLLECTIVE.findall(text)})
    names = [f"{level.lower()}/{level.lower()}{_CAPITAL.sub(_lower, kind)}" for level, kind in parts]
    lines = [f"#include <cub/{name}.cuh>\n" for name in (*names, "util_type", "thread/thread_operators")]
    return UserHeader("cub/cub.cuh", Path("cub/cub.cuh"), "".join(["#pragma once\n", *lines]))


def _lower(capital: re.Match[str]) -> str:
    return f"_{capital[0].lower()}"


def includes_torch(texts: Sequence[str]) -> bool:
    """Return True if one of the texts includes a header of PyTorch's."""
    return any(map(_TORCH.search, texts))


def standard_headers(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the headers of the C and C++ libraries that the texts include, in their order, or that PyTorch's bring."""
    named = [name for text in texts for name, _ in includes_of(text)]
    found = [name for name in named if _STANDARD.fullmatch(name)]
    return tuple(dict.fromkeys([*found, *(_BROUGHT_BY_TORCH if includes_torch(texts) else ())]))


def includes_of(text: str) -> list[tuple[str, bool]]:
    """Return the names of the headers that a text includes, and for each whether it is quoted."""
    return [(quoted or angled, bool(quoted)) for quoted, angled in INCLUDE.findall(text)]


def resolve(name: str, source: SourceFile, folders: Sequence[Path], beside: Path | None) -> Path | None:
    """Return the file of the user's that an include means, without links; None if it is none of theirs.

    Args:
        name: as the include has it.
        source: the file that is compiled, whose folder every compiler here searches.
        folders: the include folders.
        beside: the folder of the including file, for a quoted name.
    """
    places = (*((beside,) if beside is not None else ()), source.path.parent, *folders)
    return next((path.resolve() for folder in places if (path := folder / name).is_file()), None)
