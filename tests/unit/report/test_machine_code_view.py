from pathlib import Path

from rich.console import Console

from kernel_lsp.compiler.machine_code.flow import Loop
from kernel_lsp.compiler.machine_code.lines import Place
from kernel_lsp.compiler.machine_code.sass import MachineCode, SassInstruction
from kernel_lsp.judge.facts import KernelMachineCode
from kernel_lsp.report.sass import sass_record, sass_view

PATH = Path("/home/me/k.cu")
TEXT = "line one\n  line two\nline three\n"


def instruction(offset: int, opcode: str, line: int | None, live: int, guard: str = "") -> SassInstruction:
    frames = () if line is None else (Place("/usr/include/x.h", 7), Place(str(PATH), line))
    return SassInstruction(offset, guard, opcode, "R0, R1", frames, live)


CODE = KernelMachineCode(
    "sm_90",
    "k<64>",
    MachineCode(
        "k",
        (
            instruction(0x00, "MOV", 1, 2),
            instruction(0x10, "LDG.E.128", 2, 9),
            instruction(0x20, "FADD", None, 9),
            instruction(0x30, "BRA", 2, 4, "!P0"),
            instruction(0x40, "EXIT", 3, 1),
        ),
        (Loop((1, 2, 3)),),
    ),
)


def shown(width: int, **terminal) -> list[str]:
    console = Console(width=width, **terminal)
    with console.capture() as capture:
        console.print(sass_view(CODE, PATH, TEXT), soft_wrap=True)
    return capture.get().splitlines()


def test_source_and_machine_code_interleave():
    assert shown(100, color_system=None) == [
        "k<64>  sm_90: 5 instructions, most registers live: 9 (line 2)",
        "  innermost loop, line 2: 3 instructions: 1 LDG.128",
        "  offset  live",
        "    1 | line one",
        "    0000     2          MOV R0, R1",
        "    2 | line two",
        "    0010     9* |       LDG.E.128 R0, R1",
        "    0020     9  |       FADD R0, R1",
        "    0030     4  |  @!P0 BRA R0, R1",
        "    3 | line three",
        "    0040     1          EXIT R0, R1",
    ]


def test_no_line_is_cut_where_the_output_is_narrow():
    assert shown(20, color_system=None) == shown(100, color_system=None)


def test_opcodes_that_matter_are_coloured():
    lines = shown(100, force_terminal=True, color_system="standard")
    (load,) = [line for line in lines if "LDG.E" in line]
    (add,) = [line for line in lines if "FADD" in line]
    assert "36mLDG.E.128" in load
    assert "\x1b[0mFADD" in add


def test_the_record_says_what_became_of_each_line():
    record = sass_record(CODE, PATH)
    assert [(one.line, one.instructions, one.kinds, one.live) for one in record["lines"]] == [
        (1, 1, {"MOV": 1}, 2),
        (2, 2, {"LDG.128": 1, "BRA": 1}, 9),
        (3, 1, {"EXIT": 1}, 1),
    ]
    assert record["loops"] == [{"lines": [2], "kinds": {"LDG.128": 1, "FADD": 1, "BRA": 1}}]
    assert record["peak"].offset == 0x10
