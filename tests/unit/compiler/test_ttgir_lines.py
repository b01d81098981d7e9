"""Triton's intermediate code: without locations, each line with its place in the source."""

import pytest

from kernel_lsp.compiler.triton.ttgir_lines import ttgir_lines

PATH = "/home/me/soft (1).py"
TTGIR = """
#blocked = #ttg.blocked<{order = [0]}>
#loc = loc("/home/me/soft (1).py":10:0)
#loc1 = loc(unknown)
#loc9 = loc("/lib/triton/standard.py":291:36)
#loc12 = loc("x_ptr"(#loc))
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func @softmax(%x_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x_ptr"(#loc)), %n: i32 loc("n"(#loc))) {
    %cst = arith.constant dense<0.0> : tensor<8xf32, #blocked> loc(#loc1)
    %row = tt.get_program_id x : i32 loc(#loc13)
    %m = "tt.reduce"(%row) <{axis = 0 : i32}> ({
      %b = arith.maxnumf %a, %a : f32 loc(#loc20)
    }) : (f32) -> f32 loc(#loc20)
    tt.assert %m, "loc(no (place" : f32 loc(callsite("f"("/lib/triton/standard.py":1:2) at #loc3))
    tt.return loc(#loc4)
  } loc(#loc)
} loc(#loc)
#loc2 = loc("/home/me/soft (1).py":12:20)
#loc3 = loc("/home/me/soft (1).py":14:8)
#loc4 = loc("/home/you/other.py":3:1)
#loc13 = loc("row"(#loc2))
#loc20 = loc(callsite(#loc9 at #loc3))
"""


def test_each_line_has_its_innermost_place_in_the_file() -> None:
    assert list(ttgir_lines(TTGIR, PATH)) == [
        ("#blocked = #ttg.blocked<{order = [0]}>", None),
        ('module attributes {"ttg.num-warps" = 4 : i32} {', None),
        ("  tt.func @softmax(%x_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32) {", 10),
        ("    %cst = arith.constant dense<0.0> : tensor<8xf32, #blocked>", None),
        ("    %row = tt.get_program_id x : i32", 12),
        ('    %m = "tt.reduce"(%row) <{axis = 0 : i32}> ({', None),
        ("      %b = arith.maxnumf %a, %a : f32", 14),
        ("    }) : (f32) -> f32", 14),
        ('    tt.assert %m, "loc(no (place" : f32', 14),
        ("    tt.return", None),
        ("  }", 10),
        ("}", 10),
    ]


@pytest.mark.parametrize("text", ["", "#loc = loc(unknown)\n", "#loc1 = loc(#loc2)\n#loc2 = loc(#loc1)\n"])
def test_a_text_without_operations_has_no_lines(text: str) -> None:
    assert list(ttgir_lines(text, PATH)) == []


def test_places_that_name_each_other_end() -> None:
    text = "tt.return loc(#loc1)\n#loc1 = loc(#loc2)\n#loc2 = loc(#loc1)\n"
    assert list(ttgir_lines(text, PATH)) == [("tt.return", None)]
