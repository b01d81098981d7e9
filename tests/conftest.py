"""What holds for all tests."""

import os
import shutil
import signal
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent
_PROGRAMS = _ROOT / "bench_programs"
_FAST = frozenset(_ROOT / "unit" / name for name in ("config", "documentation", "report", "rules", "source", "store"))
"""Folders of the inner loop, whose tests start no worker and compile nothing."""
_APART = {"programs": _PROGRAMS, "gpu": _ROOT / "gpu"}
"""Folders all of whose tests have a mark, by that mark."""
_LONGEST = (
    "exploits/test_exploits.py",
    "unit/pool/test_ray_pool.py",
    "unit/refine/test_a_real_model_refines.py",
    "unit/model/test_served_model.py",
    "editors",
    "lsp/test_jobs.py",
    "unit/emulate/test_examples_on_the_emulator.py",
    "lsp",
)
"""Files and folders whose tests take longest, which begin first, so that no process is left with one at the end."""
_SAMPLED = {
    "unit/cli/test_lowering_a_module.py": 3,
    "unit/compiler/test_assumed_types.py": 3,
    "unit/compiler/test_build_cuda.py": 2,
    "unit/compiler/test_build_host_paths.py": 3,
    "unit/compiler/test_build_host_symbols.py": 5,
    "unit/compiler/test_build_host_wrappers.py": 4,
    "unit/compiler/test_build_nvrtc.py": 2,
    "unit/compiler/test_build_triton.py": 2,
    "unit/compiler/test_facts_without_torch.py": 2,
    "unit/compiler/test_gluon.py": 2,
    "unit/compiler/test_machine_code.py": 3,
    "unit/compiler/test_project_headers.py": 2,
    "unit/emulate/test_arithmetic_compare.py": 3,
    "unit/emulate/test_arithmetic_convert.py": 6,
    "unit/emulate/test_arithmetic_floating.py": 4,
    "unit/emulate/test_arithmetic_integer.py": 3,
    "unit/emulate/test_emulated_contraction.py": 12,
    "unit/emulate/test_emulated_counters.py": 3,
    "unit/emulate/test_emulated_kernels.py": 3,
    "unit/emulate/test_emulated_mbarriers.py": 3,
    "unit/emulate/test_emulated_special_registers.py": 3,
    "unit/emulate/test_emulated_stages.py": 3,
    "unit/emulate/test_emulated_waiting.py": 3,
    "unit/emulate/test_matrix_wmma.py": 4,
    "unit/judge/test_judging_answers.py": 3,
    "unit/judge/test_slow_baselines.py": 3,
    "unit/judge/test_statistics_arithmetic.py": 4,
    "unit/judge/test_statistics_regimes.py": 3,
    "unit/judge/test_statistics_simulation.py": 8,
    "unit/refine/test_rewrite_atomics.py": 4,
    "unit/refine/test_rewrite_block_rows.py": 6,
    "unit/refine/test_rewrite_cache_row.py": 3,
    "unit/refine/test_rewrite_grid_stride.py": 3,
    "unit/refine/test_rewrite_multi_element.py": 5,
    "unit/refine/test_rewrite_online_softmax.py": 3,
    "unit/refine/test_rewrite_parallel_rows.py": 6,
    "unit/refine/test_rewrite_register_tile.py": 6,
    "unit/refine/test_rewrite_split_columns.py": 6,
    "unit/refine/test_rewrite_swap_axes.py": 4,
    "unit/refine/test_rewrite_tile_product.py": 8,
    "unit/refine/test_rewrite_transpose_tile.py": 4,
    "unit/refine/test_rewrite_triton.py": 4,
    "unit/refine/test_rewrite_vectorize.py": 6,
    "unit/refine/test_rewrite_warp_shuffle.py": 4,
    "unit/refine/test_rewrites_of_any_kernel.py": 5,
    "unit/refine/test_strategies_on_kernelbench_files.py": 3,
    "unit/refine/test_strategies_with_a_model.py": 3,
    "unit/runner/test_error_bounds.py": 3,
    "unit/runner/test_fused_measure.py": 6,
    "unit/runner/test_oracle_and_workload.py": 5,
    "unit/runner/test_right_and_wrong_candidates.py": 8,
    "unit/runner/test_varied_inputs.py": 3,
    "unit/workload/test_contract_on_values.py": 3,
    "unit/workload/test_input_structure.py": 3,
    "unit/workload/test_kernelbench_workloads.py": 4,
    "unit/workload/test_user_packages.py": 2,
    "unit/workload/test_weights_of_an_answer.py": 3,
    "unit/workload/test_workload_families.py": 4,
    "unit/workload/test_workload_loading.py": 3,
}
"""Files whose tests are alike and take long: of so many one runs every time, and the others are `thorough`."""
_runtime = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Let programs that tests start hear an interrupt, and share nothing that runs with those of the user.

    A shell that runs tests in the background has interrupts ignored. PyTorch's threads wait for each other by spinning,
    which costs the tests beside them more than it saves on small tensors.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # processes of xdist share the folder of the one that starts them
        config.stash[_runtime] = os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="run-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what was left running for the next session: servers end without their sockets."""
    if _runtime in config.stash:
        shutil.rmtree(config.stash[_runtime], ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what the marks leave out anyway: to import all tests takes longer than many of them."""
    wanted = config.option.markexpr
    if any(collection_path == folder and f"not {mark}" in wanted for mark, folder in _APART.items()):
        return True
    folders = {"fast": _FAST, "programs": {_PROGRAMS}}.get(wanted)
    if folders is None or folders & {collection_path, *collection_path.parents}:
        return None
    return None if any(collection_path in folder.parents for folder in folders) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is not run every time; let the longest begin first, those of a file together and in order."""
    items.sort(key=lambda item: _rank(item.path))
    every = {_ROOT / name: one_in for name, one_in in _SAMPLED.items()}
    met: Counter[tuple[Path, str]] = Counter()
    for item in items:
        mark = item.get_closest_marker("sampled")
        kind = item.path, item.name.partition("[")[0] if mark else ""
        if met[kind] % (mark.args[0] if mark else every.get(item.path, 1)):
            item.add_marker(pytest.mark.thorough)
        met[kind] += 1


@cache
def _rank(path: Path) -> int:
    return next((rank for rank, name in enumerate(_LONGEST) if path.is_relative_to(_ROOT / name)), len(_LONGEST))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests by their folder."""
    if mark := _mark(item.path):
        item.add_marker(mark)


@cache
def _mark(path: Path) -> str | None:
    if path.is_relative_to(_PROGRAMS):
        return "programs"
    return "fast" if _FAST & {*path.parents} else None
