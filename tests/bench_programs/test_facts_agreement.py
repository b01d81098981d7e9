"""A sample of the benchmark that holds our facts against NVIDIA's tools: one file of kernels, every architecture."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lsp.compiler.cuda.nvrtc import compile_nvrtc
from kernel_lsp.compiler.ptx.ptxas import parse_ptxas_usage
from kernel_lsp.compiler.toolchain.toolkit import find_tools
from kernel_lsp.judge.building import Built
from tests.bench import facts_agreement

SOURCE = Path(__file__).parents[1] / "fixtures/facts/machine_code.cu"

pytestmark = pytest.mark.skipif(
    not any("triton" in path.parts for path in find_tools("cuobjdump")),
    reason="needs cuobjdump as it comes with Triton",
)


@pytest.mark.parametrize("arch", facts_agreement.ARCHES.split(","))
def test_facts_are_those_of_nvidias_tools(arch: str, tmp_path: Path) -> None:
    build = compile_nvrtc(SOURCE.read_text(), str(SOURCE), arch)
    counts: Counter[str] = Counter()
    assert list(facts_agreement.examine(Built(build, ()), arch, tmp_path, counts)) == []
    assert counts["kernels"] == 9
    assert counts["instructions"] > 1000


def test_a_wrong_fact_is_noticed(tmp_path: Path) -> None:
    build = compile_nvrtc(SOURCE.read_text(), str(SOURCE), "sm_90")
    assert build.binary is not None
    (tmp_path / "k.cubin").write_bytes(build.binary.cubin)
    usage = parse_ptxas_usage(build.log)
    for fact in build.binary.kernels:
        assert facts_agreement.against_ptxas(replace(fact, spill_load_bytes=1), usage[fact.entry])
        for change in ({"registers": 1}, {"stack_bytes": 8}, {"shared_bytes": 3}):
            wrong = replace(fact, **change)
            assert facts_agreement.against_ptxas(wrong, usage[fact.entry])
            assert list(facts_agreement.against_cuobjdump({fact.entry: wrong}, tmp_path / "k.cubin", "sm_90"))
