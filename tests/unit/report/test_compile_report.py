from rich.console import Console
from sample_verdicts import resources

from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.compiler.machine_code.occupancy import Cliff, Lever
from kernel_lsp.report.compile import diagnostics_view, facts_view


def shown(view) -> list[str]:
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(view)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_message_stands_under_its_place():
    said = Diagnostic("a.cu", 2, 5, 2, 8, Severity.ERROR, "identifier 'foo' is undefined", "20")
    assert shown(diagnostics_view([said], {"a.cu": "void f() {\r\n    foo = 3;\r\n}"})) == [
        "a.cu:2:5: error: identifier 'foo' is undefined [20]",
        "    2 |     foo = 3;",
        "      |     ^^^",
    ]


def test_columns_count_bytes():
    said = Diagnostic("a.cu", 1, 8, 1, 9, Severity.WARNING, "odd")
    assert shown(diagnostics_view([said], {"a.cu": "/*µ*/ x;"}))[2] == "      |       ^"


def test_a_message_over_several_lines_marks_the_rest_of_the_first():
    said = Diagnostic("a.cu", 1, 3, 4, 2, Severity.NOTE, "here")
    assert shown(diagnostics_view([said], {"a.cu": "a bcd\nx\ny\nz"}))[2] == "      |   ^^^"


def test_a_file_that_is_not_at_hand_is_only_named():
    said = Diagnostic("/usr/include/x.h", 7, 1, 7, 2, Severity.ERROR, "missing [brackets]")
    assert shown(diagnostics_view([said], {})) == ["/usr/include/x.h:7:1: error: missing [brackets]"]


def test_what_concerns_the_whole_file_marks_no_line():
    said = Diagnostic("a.cu", 1, 1, 1, 1, Severity.WARNING, "the workload is weak")
    assert shown(diagnostics_view([said], {"a.cu": "x"})) == ["a.cu:1:1: warning: the workload is weak"]


def test_a_line_past_the_end_is_only_named():
    said = Diagnostic("a.cu", 9, 1, 9, 1, Severity.ERROR, "expected a brace")
    assert len(shown(diagnostics_view([said], {"a.cu": "x"}))) == 1


def test_what_each_kernel_costs_on_each_architecture():
    known = resources(name="f<float, 256>", shared_bytes=49152, spill_bytes=24)
    bare = resources(name="g", spill_bytes=None, threads=None, occupancy=None, limiter=None)
    lines = shown(facts_view([("sm_80", known), ("sm_80", bare), ("sm_90", known)]))
    assert [" ".join(line.split()) for line in lines] == [
        "Arch Registers Spills Stack Shared Threads Occupancy Limit",
        "f<float, 256>",
        "sm_80 40 24 B 0 B 48 KiB 128 75 % registers",
        "sm_90 40 24 B 0 B 48 KiB 128 75 % registers",
        "g",
        "sm_80 40 ? 0 B 528 B ? ?",
    ]
    header, _, row, *_ = lines
    assert header.index("Registers") + len("Registers") == row.index("40") + len("40")


def test_what_would_raise_the_occupancy_most_ends_the_line():
    cliffs = {
        "a": Cliff(Lever.REGISTERS, -2, 8, 1.0),
        "b": Cliff(Lever.REGISTERS, -1, 8, 0.5),
        "c": Cliff(Lever.SHARED, -1536, 8, 0.75),
        "d": Cliff(Lever.THREADS, 128, 8, 0.9),
        "e": Cliff(Lever.BARRIERS, -3, 8, 0.8),
    }
    other = Cliff(Lever.SHARED, -1, 1, 0.1)
    lines = shown(facts_view(("sm_90", resources(name=n, threads=128, cliffs=(c, other))) for n, c in cliffs.items()))
    assert lines[0].endswith("Limit      Higher with")
    assert [line.partition("registers  ")[2] for line in lines[2::2]] == [
        "2 registers fewer: 100 %",
        "1 register fewer: 50 %",
        "1.50 KiB less shared: 75 %",
        "256 threads: 90 %",
        "3 barriers fewer: 80 %",
    ]


def test_the_constants_of_a_long_name_stay_beside_it():
    name = "matmul_kernel[BLOCK_M=128, BLOCK_N=128, BLOCK_K=32, GROUP_M=8, EVEN_K=True, ACTIVATION=leaky, num_warps=4]"
    _, first, second, figures = shown(facts_view([("sm_90", resources(name=name))]))
    assert first.startswith("matmul_kernel[BLOCK_M=128, ")
    assert second.index("num_warps=4]") == len("matmul_kernel")
    assert figures.split()[0] == "sm_90"
