"""Machine code by line: known kernels, the cache of listings, and the loops of made-up programs."""

import re
import struct
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from kernel_lsp.compiler.cuda.nvrtc import compile_nvrtc
from kernel_lsp.compiler.machine_code import nvdisasm
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.compiler.machine_code.cubin import CubinError
from kernel_lsp.compiler.machine_code.flow import innermost_loops
from kernel_lsp.compiler.machine_code.lines import read_lines
from kernel_lsp.compiler.machine_code.opcodes import Role, kind_of, role_of
from kernel_lsp.compiler.machine_code.sass import MachineCode, SassInstruction, by_line, disassemble, mix
from kernel_lsp.compiler.toolchain.file_cache import FileCache
from kernel_lsp.compiler.toolchain.toolkit import find_tools, site_folders
from kernel_lsp.errors import CannotJudgeError

SOURCE = Path(__file__).parents[2] / "fixtures/facts/machine_code.cu"
TEXT = SOURCE.read_text()
PATH = str(SOURCE)
ARCHES = ("sm_80", "sm_90", "sm_120")

pytestmark = pytest.mark.skipif(not list(find_tools("nvdisasm")), reason="needs nvdisasm")


@cache
def binary(arch: str) -> Binary:
    built = compile_nvrtc(TEXT, PATH, arch)
    assert built.binary is not None, built.log
    return built.binary


@cache
def kernels(arch: str) -> dict[str, MachineCode]:
    return {code.function: code for code in disassemble(binary(arch).cubin)}


def line(words: str) -> int:
    (found,) = [number for number, text in enumerate(TEXT.splitlines(), 1) if text.endswith(f"// {words}")]
    return found


def kinds(code: MachineCode, words: str) -> Mapping[str, int]:
    return next(one.kinds for one in by_line(code, PATH) if one.line == line(words))


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    ("kernel", "words", "expected"),
    [
        ("copy_vectors", "128 bits", {"LDG.128": 1, "STG.128": 1}),
        ("copy_vectors", "64 bits", {"LDG.64": 1, "STG.64": 1}),
        ("copy_vectors", "16 bits", {"LDG.16": 1, "STG.16": 1}),
        ("local_array", "on the stack", {"LDL.32": 1, "STL.32": 1}),
        ("local_array", "from the stack", {"LDL.32": 1, "STG.32": 1}),
        ("one_block", "into shared", {"LDG.32": 1, "STS.32": 1}),
        ("one_block", "barrier", {"BAR": 1}),
        ("one_block", "out of shared", {"LDS.32": 1}),
        ("one_block", "shuffle", {"SHFL": 1}),
        ("one_block", "special", {"MUFU": 1}),
        ("asynchronous", "copy", {"LDGSTS.128": 1}),
        ("nested_loops", "inner", {"LDG.32": 1, "FMUL": 1}),
        ("unrolled", "no loop", {"LDG.32": 8, "FADD": 8}),
    ],
)
def test_each_line_holds_what_it_must(arch: str, kernel: str, words: str, expected: dict[str, int]) -> None:
    found = kinds(kernels(arch)[kernel], words)
    assert {kind: found.get(kind, 0) for kind in expected} == expected


@pytest.mark.parametrize("arch", ARCHES)
def test_tensor_cores_atomics_and_matrix_loads_are_told(arch: str) -> None:
    code = kernels(arch)
    assert mix(code["tensor_cores"].instructions)["HMMA"] == 2  # 16 x 16 x 16 is two of 16 x 8 x 16
    assert sum(role_of(one.opcode) is Role.ATOMIC for one in code["one_block"].instructions) >= 1
    assert {"RED", "REDG", "ATOMG"} & kinds(code["one_block"], "atomic").keys()
    assert mix(code["asynchronous"].instructions)["LDSM"] == 1


@pytest.mark.parametrize("arch", ARCHES)
def test_a_local_array_is_stack_and_a_spill_is_a_spill(arch: str) -> None:
    facts = {fact.entry: fact for fact in binary(arch).kernels}
    indexed, spilling = facts["local_array"], facts["spills"]
    assert (indexed.stack_bytes, indexed.spill_store_bytes, indexed.spill_load_bytes) == (256, 0, 0)
    assert spilling.registers == 255
    assert min(spilling.spill_store_bytes or 0, spilling.spill_load_bytes or 0) > 0
    assert {"STL.32", "LDL.32"} & mix(kernels(arch)["spills"].instructions).keys()


@pytest.mark.parametrize("arch", ARCHES)
def test_innermost_loops_and_their_lines(arch: str) -> None:
    code = kernels(arch)

    def lines(kernel: str) -> list[set[int]]:
        bodies = [code[kernel].body(loop) for loop in code[kernel].loops]
        return [{place for one in body if (place := one.line_in(PATH))} for body in bodies]

    inner, second = lines("nested_loops")
    assert line("inner") in inner
    assert line("outer") not in inner
    assert line("second") in second
    assert line("outer") not in second
    (spilled,) = lines("spills")
    assert len(spilled) >= 1
    assert lines("unrolled") == lines("copy_vectors") == []


@pytest.mark.parametrize("arch", ARCHES)
def test_live_registers_are_bounded_by_those_declared_and_highest_where_most_is_held(arch: str) -> None:
    declared = {fact.entry: fact.registers for fact in binary(arch).kernels}
    for entry, code in kernels(arch).items():
        peak = code.peak
        assert peak is not None
        assert 0 < peak.live <= declared[entry]
    hungry, modest = kernels(arch)["spills"].peak, kernels(arch)["inlined"].peak
    assert hungry is not None
    assert modest is not None
    assert hungry.live > 200
    assert modest.live < 20


@pytest.mark.parametrize("arch", ARCHES)
def test_an_inlined_function_counts_at_its_own_line_and_knows_its_caller(arch: str) -> None:
    code = kernels(arch)["inlined"]
    (root,) = [one for one in code.instructions if one.opcode.startswith("MUFU")][:1]
    assert [place.line for place in root.frames if place.path == PATH] == [line("in a helper"), line("call")]
    assert root.line_in(PATH) == line("in a helper")
    assert root.line_in("elsewhere.cu") is None
    assert {"LDG.32", "STG.32"} <= kinds(code, "call").keys()


@pytest.mark.parametrize("arch", ARCHES)
def test_line_tables_agree_with_nvdisasm(arch: str, tmp_path: Path) -> None:
    (tmp_path / "k.cubin").write_bytes(binary(arch).cubin)
    tool = next(find_tools("nvdisasm"))
    said = subprocess.run([tool, "-c", "-gi", tmp_path / "k.cubin"], capture_output=True, text=True, check=True).stdout
    tables, function = read_lines(binary(arch).cubin), ""
    frames: list[tuple[str, int]] = []
    expected: tuple[tuple[str, int], ...] = ()
    checked = 0
    for printed in said.splitlines():
        if found := re.match(r"\.text\.(\S+):", printed):
            function, expected = found[1], ()
        elif found := re.search(r'//## File "([^"]+)", line (\d+)', printed):
            frames.append((found[1], int(found[2])))
        elif found := re.match(r"\s+/\*([0-9a-f]{4,})\*/", printed):
            expected, frames = tuple(frames) or expected, []
            assert tuple((p.path, p.line) for p in tables[function].at(int(found[1], 16))) == expected
            checked += 1
    assert checked > 500


@pytest.mark.parametrize("name", ["Köln/200.cu", "Köln/京都.cu", "ä b/one.cu"])
def test_a_line_table_names_a_path_that_is_not_ascii(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    built = compile_nvrtc("__global__ void one(float* x) { *x = 1; }", path, "sm_90")
    assert built.binary is not None, built.log
    (table,) = read_lines(built.binary.cubin).values()
    assert {place.path for places in table.frames for place in places} == {path}


def test_a_listing_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = FileCache(tmp_path, 1 << 20, ".sass")
    cubin = binary("sm_90").cubin
    first = disassemble(cubin, kept)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nvdisasm was run again")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert disassemble(cubin, kept) == first
    with pytest.raises(AssertionError):
        disassemble(cubin)


def test_without_nvdisasm_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvdisasm, "find_tools", lambda _: iter(()))
    with pytest.raises(CannotJudgeError) as caught:
        disassemble(binary("sm_90").cubin)
    assert "pip install" in (caught.value.fix or "")


def test_an_image_of_an_older_toolkit_is_read_too(tmp_path: Path) -> None:
    ptxas = next((p for f in site_folders() if (p := f / "triton/backends/nvidia/bin/ptxas").is_file()), None)
    if ptxas is None:
        pytest.skip("needs the ptxas in Triton's wheel")
    (tmp_path / "k.ptx").write_text(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
        " .reg .b64 %a;\n .reg .f32 %f;\n ld.param.u64 %a, [p];\n cvta.to.global.u64 %a, %a;\n"
        " ld.global.f32 %f, [%a];\n add.f32 %f, %f, %f;\n st.global.f32 [%a+4], %f;\n ret;\n}\n"
    )
    subprocess.run([ptxas, "-arch=sm_80", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"], check=True)
    cubin = (tmp_path / "k.cubin").read_bytes()
    (code,) = disassemble(cubin, by_triton=True)
    assert mix(code.instructions).keys() >= {"LDG.32", "FADD", "STG.32", "EXIT"}
    assert code.peak is not None
    assert code.peak.live > 0
    assert all(one.frames == () for one in code.instructions)


@pytest.mark.parametrize("cubin", [b"", b"\x7fELF", b"\x7fELF" + bytes(200)])
def test_what_is_no_cubin_is_refused(cubin: bytes) -> None:
    with pytest.raises((CubinError, struct.error, IndexError, ValueError)):
        disassemble(cubin)


@pytest.mark.parametrize(
    ("opcode", "kind", "role"),
    [
        ("LDG.E.128.CONSTANT", "LDG.128", Role.GLOBAL),
        ("LDG.E.LTC128B.64", "LDG.64", Role.GLOBAL),
        ("LDG.E.U8", "LDG.8", Role.GLOBAL),
        ("LDG.E.ENL2.256", "LDG.256", Role.GLOBAL),
        ("STS.U16", "STS.16", Role.SHARED),
        ("LDGSTS.E.BYPASS.LTC128B.128", "LDGSTS.128", Role.GLOBAL),
        ("LDL.LU", "LDL.32", Role.LOCAL),
        ("HGMMA.64x128x16.F32", "HGMMA", Role.TENSOR),
        ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", "REDG", Role.ATOMIC),
        ("BAR.SYNC.DEFER_BLOCKING", "BAR", Role.BARRIER),
        ("IMAD.WIDE.U32", "IMAD", None),
    ],
)
def test_opcodes_in_short(opcode: str, kind: str, role: Role | None) -> None:
    assert (kind_of(opcode), role_of(opcode)) == (kind, role)


def program(text: str) -> tuple[list[SassInstruction], dict[str, int]]:
    """A made-up program: labels end with a colon, `@P BRA x` depends on a predicate."""
    code: list[SassInstruction] = []
    labels: dict[str, int] = {}
    for word in filter(None, (part.strip() for part in text.split("\n"))):
        if word.endswith(":"):
            labels[f".L_{word[:-1]}"] = len(code)
            continue
        guard, _, rest = word.rpartition("@P ")
        opcode, _, target = rest.partition(" ")
        operands = re.sub(r"\b([a-z])\b", r"`(.L_\1)", target)
        code.append(
            SassInstruction(len(code) * 16, "P0" if guard or word.startswith("@") else "", opcode, operands, (), 1)
        )
    return code, labels


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ("a:\nFADD\n@P BRA a\nEXIT", [(0, 1)]),
        ("NOP\na:\nFADD\nb:\nFMUL\n@P BRA b\n@P BRA a\nEXIT", [(2, 3)]),
        # the condition is at the head, and the way out of the loop jumps over its end
        ("a:\nISETP\n@P BRA b\nFADD\nBRA a\nb:\nEXIT", [(0, 1, 2, 3)]),
        # part of the loop was moved behind the end of the function
        ("a:\nISETP\n@P BRA c\nb:\nFADD\n@P BRA a\nEXIT\nc:\nFMUL\nBRA b", [(0, 1, 2, 3, 5, 6)]),
        # a forward branch alone, and two loops side by side
        ("@P BRA a\nFADD\na:\nEXIT", []),
        ("a:\nFADD\n@P BRA a\nb:\nFMUL\n@P BRA b\nEXIT", [(0, 1), (2, 3)]),
        # threads that part in the loop meet again at a barrier register
        ("a:\nBSSY B0, b\n@P BRA c\nFADD\nc:\nBSYNC B0\nb:\n@P BRA a\nEXIT", [(0, 1, 2, 3, 4)]),
        # a uniform predicate among the operands makes the branch a conditional one
        ("a:\nFADD\nBRA.U !UP0, a\nEXIT", [(0, 1)]),
        # a cycle entered in its middle has no head that dominates it: no natural loop
        ("@P BRA b\na:\nFADD\nb:\nFMUL\n@P BRA a\nEXIT", []),
        ("", []),
    ],
)
def test_loops_of_made_up_programs(text: str, bodies: list[tuple[int, ...]]) -> None:
    code, labels = program(text)
    assert [loop.body for loop in innermost_loops(code, labels)] == bodies
