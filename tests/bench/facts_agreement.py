"""Facts of every example and fixture kernel against NVIDIA's own tools: `python -m tests.bench.facts_agreement`.

For each architecture: registers, stack, spills, shared memory and barriers against `ptxas -v` and
`cuobjdump -res-usage`; source lines of each instruction against `nvdisasm -gi`; instructions against `nvdisasm -c`.
CUDA is built by NVRTC, Triton by its own compiler, and the PTX of a Triton kernel is given to Triton's ptxas once more
for what it says. Needs no GPU. Options: --arch, --record.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_lsp.check import find_kernel_files
from kernel_lsp.compiler.machine_code.binary import Binary, KernelFacts
from kernel_lsp.compiler.machine_code.cubin import read_cubin
from kernel_lsp.compiler.machine_code.sass import disassemble
from kernel_lsp.compiler.ptx.ptxas import PtxasUsage, parse_ptxas_usage
from kernel_lsp.compiler.toolchain.toolkit import find_tools
from kernel_lsp.config.load import load_settings
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.facts import open_builder
from tests.bench.record import record

ROOT = Path(__file__).parents[2]
ARCHES = "sm_80,sm_86,sm_89,sm_90,sm_100,sm_120"
RESERVED = 1024  # bytes of shared memory that cuobjdump counts from sm_90 on, and ptxas does not
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_OFFSET = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
_PLACE = re.compile(r'//## File "([^"]+)", line (\d+)')


def tool(name: str) -> Path:
    """A program of NVIDIA's; the benchmark ends where it is missing."""
    triton = [path for path in find_tools(name) if "triton" in path.parts]
    if not triton:
        sys.exit(f"needs {name} as it comes with Triton")
    return triton[0]


def said(name: str, *arguments: str | Path) -> str:
    """What a program printed, on both streams."""
    done = subprocess.run([tool(name), *arguments], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def against_ptxas(fact: KernelFacts, usage: PtxasUsage) -> list[str]:
    """Where a kernel's facts are not what ptxas prints."""
    ours = (fact.registers, fact.stack_bytes, fact.shared_bytes, fact.barriers)
    theirs = (usage.registers, usage.stack_bytes, usage.shared_bytes, usage.barriers)
    wrong = [f"ptxas: {ours} is not {theirs}"] if ours != theirs else []
    spills = (fact.spill_store_bytes, fact.spill_load_bytes)
    if spills != (None, None) and spills != (usage.spill_store_bytes, usage.spill_load_bytes):
        wrong.append(f"ptxas: spills {spills} are not {usage}")
    return wrong


def against_cuobjdump(facts: dict[str, KernelFacts], file: Path, arch: str) -> Iterator[str]:
    """Where facts are not what cuobjdump reads from the same image."""
    reserved = RESERVED if int(re.sub(r"\D", "", arch)) >= 90 else 0
    printed = {name: tuple(map(int, rest)) for name, *rest in _USAGE.findall(said("cuobjdump", "-res-usage", file))}
    for entry, fact in facts.items():
        if entry not in printed:
            yield f"cuobjdump does not know {entry}"
            continue
        registers, stack, shared = printed[entry]
        ours = (fact.registers, fact.stack_bytes, fact.shared_bytes)
        if ours != (registers, stack, max(shared - reserved, 0)):
            yield f"cuobjdump: {ours} is not {printed[entry]}"


def against_nvdisasm(cubin: bytes, file: Path, by_triton: bool, counts: Counter[str]) -> Iterator[str]:
    """Where our instructions or their source lines are not those that nvdisasm prints."""
    codes = {
        code.function: {one.offset: one for one in code.instructions}
        for code in disassemble(cubin, by_triton=by_triton)
    }
    code, function, pending, frames = {}, "", [], ()
    for line in said("nvdisasm", "-c", "-gi", file).splitlines():
        if found := re.match(r"\.text\.(\S+):", line):
            function, frames = found[1], ()
            code = codes[function]
        elif found := _PLACE.search(line):
            pending.append((found[1], int(found[2])))
        elif found := _OFFSET.match(line):
            frames, pending = tuple(pending) or frames, []
            one = code.get(int(found[1], 16))
            if one is None:
                continue  # padding behind the end
            counts["instructions"] += 1
            text = " ".join(filter(None, (f"@{one.guard}" if one.guard else "", one.opcode, one.operands)))
            if text.split() != found[2].split():
                yield f"{function}+{found[1]}: `{text}` is not `{found[2]}`"
            if tuple((place.path, place.line) for place in one.frames) != frames:
                yield f"{function}+{found[1]}: {one.frames} are not {frames}"


def examine(built: Built, arch: str, scratch: Path, counts: Counter[str]) -> Iterator[str]:
    """All disagreements over one build."""
    by_triton = built.build.way == "triton"
    for image in built.images:
        facts = {fact.entry.partition("#")[0]: fact for fact in image.kernels}
        file = scratch / "kernel.cubin"
        file.write_bytes(image.cubin)
        counts["kernels"] += len(facts)
        usage = _triton_usage(image, scratch, facts) if by_triton else parse_ptxas_usage(built.build.log)
        for entry, fact in facts.items():
            if entry not in usage:
                yield f"ptxas said nothing of {entry}"
            else:
                yield from against_ptxas(fact, usage[entry])
        yield from against_cuobjdump(facts, file, arch)
        yield from against_nvdisasm(image.cubin, file, by_triton, counts)


def _triton_usage(image: Binary, scratch: Path, facts: dict[str, KernelFacts]) -> dict[str, PtxasUsage]:
    """What ptxas prints for the PTX of a Triton kernel, if that gives the same code again."""
    ptx = scratch / "kernel.ptx"
    ptx.write_text(image.ptx or "")
    found = re.search(r"^\.target (\w+)", image.ptx or "", re.MULTILINE)
    target = found[1] if found else image.arch
    name = "ptxas-blackwell" if int(re.sub(r"\D", "", target)) >= 100 else "ptxas"
    again = scratch / "again.cubin"
    log = said(name, "-v", "-lineinfo", "--regAllocOptLevel=2", f"--gpu-name={target}", ptx, "-o", again)
    same = {fact.entry: (fact.registers, fact.stack_bytes) for fact in read_cubin(again.read_bytes())}
    assert all(same[entry] == (fact.registers, fact.stack_bytes) for entry, fact in facts.items()), (same, facts)
    return parse_ptxas_usage(log)


async def main() -> None:
    """Build everything, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default=ARCHES)
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    counts: dict[str, Counter[str]] = {arch: Counter() for arch in asked.arch.split(",")}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(None, overrides={"arch": asked.arch, "paths.cache": folder})[0]
        async with open_builder() as builder:
            for source in find_kernel_files([ROOT / "examples", ROOT / "tests/fixtures"]):
                name = str(source.path.relative_to(ROOT))
                builds = await builder(source, settings)
                for arch, built in builds.items():
                    if not built.images:
                        reason = built.first_error if not built.ok else "no launch is known"
                        counts[arch]["files not built"] += 1
                        print(f"{name} {arch}: not built: {reason}")
                        continue
                    found = list(examine(built, arch, Path(folder), counts[arch]))
                    counts[arch]["disagreements"] += len(found)
                    wrong += [f"{name} {arch}: {one}" for one in found]
                print(f"{name:44} {len(wrong)} disagreements so far", flush=True)
    for one in wrong[:20]:
        print(one)
    for arch, count in counts.items():
        print(arch, dict(count))
    if asked.record:
        figures: dict[str, Any] = {arch: dict(count) for arch, count in counts.items()}
        record("facts_agreement", {"by_arch": figures, "examples_of_disagreement": wrong[:20]})
    sys.exit(bool(wrong))


if __name__ == "__main__":
    asyncio.run(main())
