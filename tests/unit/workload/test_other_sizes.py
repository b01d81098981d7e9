"""Cases that a workload does not list: one of its own with one whole number changed."""

from kernel_lsp.workload.other_sizes import other_sizes, sizes_near_the_largest


def test_each_whole_number_of_the_smallest_case_becomes_odd_and_no_border() -> None:
    listed = [{"rows": 4096, "cols": 2048}, {"rows": 6, "cols": 300}]
    found = other_sizes(listed)
    assert found[:2] == [{"rows": 8209, "cols": 300}, {"rows": 6, "cols": 4099}], "beyond all that is listed first"
    assert found[2:] == [
        {"rows": 4093, "cols": 300},
        {"rows": 6, "cols": 2039},
        {"rows": 5, "cols": 300},
        {"rows": 6, "cols": 293},
    ]


def test_what_is_no_whole_number_stays() -> None:
    listed = [{"n": 64, "causal": True, "eps": 1e-5, "kind": "relu", "offset": 0}]
    found = other_sizes(listed)
    assert [case["n"] for case in found] == [131, 61]
    assert all({**case, "n": 64} == listed[0] for case in found)


def test_none_is_listed_and_none_is_there_twice() -> None:
    listed = [{"n": 1}, {"n": 2}, {"n": 5}]
    found = other_sizes(listed)
    assert found == [{"n": 11}, {"n": 3}]
    assert other_sizes([{}]) == []


def test_near_the_largest_case_one_number_at_a_time_is_the_prime_below_or_above() -> None:
    listed = [{"rows": 8, "cols": 1 << 20}, {"rows": 8192, "cols": 2048, "causal": True, "eps": 1e-5}]
    found = sizes_near_the_largest(listed)
    assert [(case["rows"], case["cols"]) for case in found] == [(8191, 2048), (8209, 2048), (8192, 2039), (8192, 2053)]
    assert all((case["causal"], case["eps"]) == (True, 1e-5) for case in found)


def test_a_case_near_the_largest_that_is_listed_is_not_named_again() -> None:
    assert sizes_near_the_largest([{"n": 13}, {"n": 12}]) == [{"n": 11}, {"n": 17}]
    assert sizes_near_the_largest([{"n": 12}, {"n": 11}]) == [{"n": 13}]
    assert sizes_near_the_largest([{"n": 1}]) == [{"n": 2}]
    assert sizes_near_the_largest([{"causal": False}]) == []


def test_what_is_always_a_multiple_stays_one() -> None:
    listed = [{"rows": 96, "cols": 64}, {"rows": 8192, "cols": 768}]
    multiples = {"cols": 4}
    assert [case["cols"] for case in other_sizes(listed, multiples) if case["rows"] == 96] == [4 * 389, 4 * 191, 4 * 13]
    assert [case["rows"] for case in other_sizes(listed, multiples) if case["cols"] == 64] == [16411, 8191, 89]
    assert [case["cols"] for case in sizes_near_the_largest(listed, multiples)] == [768, 768, 4 * 191, 4 * 193]
    assert other_sizes([{"n": 128}], {"n": 128}) == [{"n": 3 * 128}]


def test_near_the_largest_case_what_fits_into_another_entry_goes_on_to_fit() -> None:
    listed = [{"words": 1000, "padded": 1024}, {"words": 50257, "padded": 50304}]
    found = sizes_near_the_largest(listed, {"padded": 128})
    assert found == [
        {"words": 50231, "padded": 50304},
        {"words": 50261, "padded": 50304},
        {"words": 50257, "padded": 128 * 397},
    ]
    square = sizes_near_the_largest([{"m": 512, "n": 512}])
    assert [(one["m"], one["n"]) for one in square] == [(509, 512), (521, 512), (512, 509), (512, 521)]
