import numpy as np
import pytest

from kernel_lsp.emulate.arithmetic import bind
from tests.bench import ptx_fuzz
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
