import argparse
import dataclasses
import itertools
import json
import time

import numpy as np
import pytest

from kernel_lsp.emulate.arithmetic import bind
from tests.bench import ptx_fuzz, ptx_fuzz_warp
from tests.bench.fuzz import arithmetic, kernels
from tests.bench.fuzz.comparing import compare
from tests.bench.fuzz.generators import GENERATORS
from tests.bench.fuzz.instance import LANES, REGISTERS, Instance

needs_ptxas = pytest.mark.skipif(not ptx_fuzz.find_ptxas().exists(), reason="Triton brings no assembler here")


def addition(text="add.f32 {d0}, {a0}, {a1};"):
    a = np.arange(LANES, dtype=np.uint32)
    return Instance("add.f32", text, (a, a), ("b32",), lambda: (a,))


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_give_what_they_are_asked_for_and_the_emulator_can_do_it(name):
    generator, _ = GENERATORS[name]
    instances = list(generator(np.random.default_rng(0), 5000))
    assert len(instances) >= 4000
    for instance in instances[:: len(instances) // 300]:
        results = instance.expected()
        assert len(results) == len(instance.results)
        for kind, result in zip(instance.results, results, strict=True):
            assert np.can_cast(result.dtype, REGISTERS[kind], "same_kind")
            assert np.broadcast_shapes(result.shape, (LANES,)) == (LANES,)


def test_every_opcode_of_the_table_is_bound_and_is_there_once():
    opcodes = [shape.opcode for shape in arithmetic.shapes()]
    assert len(opcodes) == len(set(opcodes))
    assert [opcode for opcode in opcodes if bind(opcode) is None] == []


@needs_ptxas
def test_a_sample_is_legal_for_the_assembler():
    instances = list(arithmetic.generate(np.random.default_rng(0), 6000))[::30]
    assembled = kernels.assemble(instances, ptx_fuzz.find_ptxas(), "sm_90", threads=2)
    assert assembled.refused == []
    assert sum(len(kernel.instances) for kernel in assembled.kernels) == len(instances)


@needs_ptxas
def test_what_is_illegal_is_named_and_the_rest_assembled():
    wrong = addition("add.rn.sat.f16x4 {d0}, {a0}, {a1};")
    assembled = kernels.assemble([addition(), wrong, addition()], ptx_fuzz.find_ptxas(), "sm_90", threads=1)
    assert [instance for instance, _ in assembled.refused] == [wrong]
    assert [len(kernel.instances) for kernel in assembled.kernels] == [2]


def test_one_wrong_bit_is_found_with_its_operands():
    theirs = np.arange(LANES, dtype=np.uint32)
    theirs[[9, 200]] ^= 1
    found = compare(addition(), (theirs,), addition().expected())
    assert found.different == 2
    assert str(found.example).endswith("0x00000009 0x00000009  ->  0x00000008, not 0x00000009")


def asked(**changes):
    options = {"seed": 1, "warps": 4, "only": "", "arch": 90, "seconds": 60.0, "emulator": True}
    return argparse.Namespace(**options | changes)


def row(opcode, failed=""):
    return ptx_fuzz_warp.Row(opcode, 4, 128, 0, None, "", failed)


@needs_ptxas
@pytest.mark.parametrize("family", ["mbarriers", "clusters", "bulk", "maps"])
def test_kernels_of_hopper_are_legal_for_the_assembler(family):
    some = itertools.islice(ptx_fuzz_warp.trials(family, asked()), 0, None, 8)
    assert ptx_fuzz_warp.assemble(some, str(ptx_fuzz.find_ptxas()), 90) == 0


@needs_ptxas
def test_histories_that_begin_without_an_arrival_break_no_later_assembler():
    later = ptx_fuzz.find_ptxas().with_name("ptxas-blackwell")
    trials = ptx_fuzz_warp.trials("mbarriers", asked(only="_tx.relaxed"))
    assert ptx_fuzz_warp.assemble(trials, str(later), 90) == 0


def test_a_process_of_its_own_answers_for_a_family():
    rows, why = ptx_fuzz_warp.gather("warps", time.monotonic() + 300, asked(only="redux"))
    assert (len(rows), why) == (9, "")
    assert not any(row.differing or row.failed for row in rows)


def test_what_fails_gets_a_row_and_a_new_process_goes_on_behind_it(monkeypatch):
    skipped = []

    def listen(family, skip, end, arguments, take):
        skipped.append(skip)
        for number in range(skip, 4):
            take(row(f"op{number}", "it was launched"))
            if number == 1:
                take(row(f"op{number}", "it ran"))
                return "CUDA_ERROR_ILLEGAL_INSTRUCTION"
            take(row(f"op{number}"))
        return ""

    monkeypatch.setattr(ptx_fuzz_warp, "listen", listen)
    rows, why = ptx_fuzz_warp.gather("bulk", time.monotonic() + 300, asked())
    assert [(one.opcode, one.failed) for one in rows] == [
        ("op0", ""),
        ("op1", "CUDA_ERROR_ILLEGAL_INSTRUCTION while it ran"),
        ("op2", ""),
        ("op3", ""),
    ]
    assert (skipped, why) == ([0, 2], "")


def test_a_process_that_dies_by_a_signal_says_by_which_and_in_what_step(monkeypatch, tmp_path):
    program = tmp_path / "dies"
    begun = json.dumps(dataclasses.asdict(row("op0", "the driver compiled its PTX")))
    program.write_text(f"#!/bin/sh\necho '{begun}'\necho noise >&2\nkill -SEGV $$\n")
    program.chmod(0o700)
    monkeypatch.setattr(ptx_fuzz_warp.sys, "executable", str(program))
    said = []
    why = ptx_fuzz_warp.listen("mbarriers", 0, time.monotonic() + 300, asked(), said.append)
    assert why == "signal 11 (Segmentation fault)"
    assert [one.failed for one in said] == ["the driver compiled its PTX"]


def test_a_trial_under_way_when_time_is_over_has_not_failed():
    rows, why = ptx_fuzz_warp.gather("warps", time.monotonic() - 1, asked())
    assert (rows, why) == ([], "no time was left")


def test_a_family_without_a_gpu_says_why_it_has_no_rows(monkeypatch):
    monkeypatch.setattr(ptx_fuzz_warp, "listen", lambda *_: "no driver")
    assert ptx_fuzz_warp.gather("warps", time.monotonic() + 300, asked()) == ([], "no driver")
