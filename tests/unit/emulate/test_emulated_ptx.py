"""PTX is read as compilers write it."""

import numpy as np
import pytest
from emulator_kit import compiled, launch

from kernel_lsp.emulate.errors import EmulatorFault
from kernel_lsp.emulate.program import Address, Immediate, Location, Register, Special, Symbol, Vector
from kernel_lsp.emulate.ptx import immediate, immediate_bits, load

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def body(text: str, head: str = "") -> str:
    return (
        f"{HEAD}{head}\n.visible .entry k(.param .u64 k_param_0, .param .align 8 .b8 k_param_1[12])\n{{\n{text}\n}}\n"
    )


def test_module():
    program = load(
        body(
            "ret;",
            """.global .align 4 .b8 bytes[6] = {1, 0xFF, 3};
            .global .align 8 .u64 where = generic(bytes)+2;
            .const .align 4 .f32 numbers[2] = {0f3F800000, 0fC0000000};
            .extern .shared .align 16 .b8 dynamic[];
            .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);""",
        )
    )
    assert program.target == "sm_90a"
    assert [kernel.name for kernel in program.kernels] == ["k"]
    assert program.variables["bytes"].initial == b"\x01\xff\x03"
    assert program.variables["bytes"].size == 6
    assert program.variables["where"].relocations == ((0, "bytes", 2),)
    assert np.frombuffer(program.variables["numbers"].initial, np.float32).tolist() == [1, -2]
    assert program.variables["dynamic"].size == 0
    assert program.functions["k"].parameter_offsets == {"k_param_0": 0, "k_param_1": 8}
    assert program.functions["k"].parameter_bytes == 20
    assert "vprintf" not in program.functions


def test_instructions():
    function = load(
        body(
            """.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<3>;
            mov.u32 %r1, %tid.x;
            @!%p1 ld.global.nc.v2.u32 {%r2, %r3}, [%rd1+-8];
            st.shared.u32 [dynamic+4], 0x1F;
            shfl.sync.bfly.b32 %r4|%p2, %r1, 16, 31, -1;
            $L__again: bra $L__again;"""
        )
    ).functions["k"]
    special, read, write, shuffle, branch = function.code
    assert special.operands == (Register("%r1"), Special("%tid.x"))
    assert read.guard is not None
    assert read.guard.negated
    assert read.operands == (Vector((Register("%r2"), Register("%r3"))), Address(Register("%rd1"), -8))
    assert write.operands == (Address(Symbol("dynamic"), 4), Immediate(31))
    assert shuffle.operands[-1] == Immediate(-1)
    assert branch.operands == (Symbol("$L__again"),)
    assert function.labels == {"$L__again": 4}
    assert function.registers["%rd2"] == "b64"


def test_registers_of_inner_scopes_are_their_own():
    function = load(
        body(
            """.reg .b32 %r<3>;
            { .reg .b32 t; mov.u32 t, 1; add.u32 %r1, t, t; }
            { .reg .b32 t; mov.u32 t, 2; { .reg .b32 t; mov.u32 t, 3; } add.u32 %r2, t, t; }"""
        )
    ).functions["k"]
    first, second, third = (each.operands[0] for each in function.code if each.opcode == "mov.u32")
    assert len({first, second, third}) == 3
    assert function.code[-1].operands[1:] == (second, second)


def test_places_with_the_calls_they_were_inlined_into():
    function = load(
        '.version 8.0\n.target sm_80\n.file 1 "/a/own.cu"\n.file 2 "/b/header.h"\n.entry k()\n{\n'
        ".loc 1 7 3\nmov.u32 %r1, 1;\n"
        ".loc 2 30 5, function_name $s, inlined_at 1 7 3\nmov.u32 %r1, 2;\n"
        ".loc 2 40 5, function_name $s, inlined_at 2 30 5\nmov.u32 %r1, 3;\n}"
    ).functions["k"]
    own = Location("/a/own.cu", 7, 3)
    header = Location("/b/header.h", 30, 5, own)
    assert [each.location for each in function.code] == [own, header, Location("/b/header.h", 40, 5, header)]
    assert function.code[2].location.own == own
    assert function.code[2].location.within("/elsewhere/own.cu") == own


def test_places_in_comments_of_llvm():
    function = load(
        ".version 8.0\n.target sm_80\n.entry k()\n{\n"
        ".loc 2 187 33 // standard.py:187:33 @[ standard.py:191:40 @[ own.py:26:64 ] ]\nret;\n}\n"
        '.file 1 "/a/own.py"\n.file 2 "/t/standard.py"\n'
    ).functions["k"]
    assert [(at.file, at.line) for at in function.code[0].location.chain] == [
        ("/t/standard.py", 187),
        ("/t/standard.py", 191),
        ("/a/own.py", 26),
    ]


def test_paths_of_any_letters_and_names_with_blanks():
    function = load(
        ".version 8.0\n.target sm_80\n.entry k()\n{\n"
        ".loc 1 4 3 // my own.py:4:3 @[ my own.py:26:64 ]\nret;\n}\n"
        '.file 1 "/\\303\\244 b/my own.py"\n'
    ).functions["k"]
    assert [(at.file, at.line) for at in function.code[0].location.chain] == [
        ("/ä b/my own.py", 4),
        ("/ä b/my own.py", 26),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "bits"),
    [
        ("-1", "b32", 0xFFFFFFFF),
        ("-1", "u16", 0xFFFF),
        ("0x10", "u64", 16),
        ("017", "u32", 15),
        ("0b101", "u32", 5),
        ("7U", "u32", 7),
        ("0f3F800000", "f32", 0x3F800000),
        ("0f3F800000", "b32", 0x3F800000),
        ("0d3FF0000000000000", "f64", 0x3FF0000000000000),
        ("0d3FF0000000000000", "f32", 0x3F800000),
        ("-1", "pred", 1),
        ("0", "pred", 0),
    ],
)
def test_constants(text, kind, bits):
    constant = immediate(text)
    assert constant is not None
    assert immediate_bits(constant, kind) == bits


def test_text_that_is_no_ptx():
    with pytest.raises(EmulatorFault):
        load(body(".reg .b32 %r<2>;\nmov.u32 %r1, (;"))


ASKS_FOR_MORE = """
extern "C" __global__ void k(int* y, int n) {
    if (n > 5) asm volatile("wgmma.fence.sync.aligned;");
    y[0] = n;
}
"""


def test_instructions_without_a_meaning_matter_only_when_they_are_reached():
    ptx = compiled(ASKS_FOR_MORE, "sm_90a")
    assert launch(ptx, "k", 1, 1, np.zeros(1, np.int32), 3).arrays[0][0] == 3
