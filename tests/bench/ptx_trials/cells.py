"""Trials of atom and red on global and shared memory, each thread on a cell of its own or several on one."""

from collections.abc import Iterator

import numpy as np

from kernel_lsp.emulate import atomics
from tests.bench.ptx_trials.trial import Array, Trial, module, numbers, vector

THREADS = 128
CELL = 16
FORMS = [
    *(f"{name}.{kind}" for name in ("add", "min", "max") for kind in ("u32", "u64")),
    *(f"{name}.{kind}" for name in ("min", "max") for kind in ("s32", "s64")),
    *(f"{name}.{kind}" for name in ("and", "or", "xor", "exch") for kind in ("b32", "b64")),
    *("add.s32", "inc.u32", "dec.u32", "cas.b16", "cas.b32", "cas.b64", "add.f32", "add.f64"),
    *(f"add.noftz.{kind}" for kind in ("f16", "bf16", "f16x2", "bf16x2")),
]
VECTORS = [
    *("add.v2.f32", "add.v4.f32"),
    *(
        f"{name}.noftz.v{count}.{kind}"
        for name in ("add", "min", "max")
        for count in (2, 4)
        for kind in ("f16", "bf16", "f16x2", "bf16x2")
    ),
]
ORDER_MATTERS = ("exch", "cas", "inc", "dec", "f16", "f32", "f64")


def trials(rng: np.random.Generator, arch: int, warps: int) -> Iterator[Trial]:
    """Every operation and type that sm_`arch` has, each executed by `warps` warps."""
    for form in FORMS:
        if "bf16" in form and arch < 90:
            continue
        for space in ("global.", "shared.", ""):
            yield _trial(rng, arch, f"atom.{space}{form}", warps)
        if not form.startswith(("exch", "cas")):
            yield _trial(rng, arch, f"red.global.{form}", warps)
        if not any(word in form for word in ORDER_MATTERS):
            yield _trial(rng, arch, f"atom.global.{form}", warps, collide=True)
            yield _trial(rng, arch, f"red.shared.{form}", warps, collide=True)
    if arch >= 90:
        for form in VECTORS:
            yield _trial(rng, arch, f"atom.global.{form}", warps)


def _trial(rng: np.random.Generator, arch: int, opcode: str, warps: int, collide: bool = False) -> Trial:
    """Each thread updates the cell it is told; only the cells are compared where several threads share one."""
    operation = atomics.bind(opcode)
    assert operation is not None
    n, width, count = 32 * warps, operation.width, operation.count
    kind = opcode.split(".")[-1].removesuffix("x2")
    cells, *values = (_cells(rng, kind, n, width * count) for _ in range(1 + operation.operands))
    same = rng.random(n) < 0.3  # so that some comparisons hold
    values[0][same] = cells[same]
    cell = np.arange(n)
    if collide:
        cell = cell // THREADS * THREADS + rng.integers(0, 8, n)
    returns = opcode.startswith("atom")
    final, olds = _update(operation, cells, values, cell)
    known = np.zeros((2, n, CELL), np.bool_)
    known[0] = True
    known[1, :, : width * count] = returns and not collide
    element = np.dtype({"f16": "f2", "f32": "f4", "f64": "f8"}.get(kind, f"u{min(width, 2 if kind == 'bf16' else 8)}"))
    return Trial(
        opcode + (" [cells shared]" if collide else ""),
        module(arch, _body(opcode, operation, n), shared=THREADS * CELL if ".shared." in opcode else 0),
        n // THREADS,
        THREADS,
        np.concatenate([cell.astype(np.uint64).view(np.uint8), *(value.reshape(-1) for value in values)]),
        np.concatenate([cells.reshape(-1), np.zeros(n * CELL, np.uint8)]),
        np.concatenate([final.reshape(-1), olds.reshape(-1)]).view(element),
        known.reshape(-1, element.itemsize)[:, 0],
        warps,
    )


def _cells(rng: np.random.Generator, kind: str, n: int, size: int) -> Array:
    """(n, CELL) bytes, of which the first `size` are numbers."""
    cells = np.zeros((n, CELL), np.uint8)
    each = numbers(rng, kind, 1).itemsize
    cells[:, :size] = numbers(rng, kind, n * size // each).view(np.uint8).reshape(n, size)
    return cells


def _update(operation: atomics.Atomic, cells: Array, values: list[Array], cell: Array) -> tuple[Array, Array]:
    """The cells after all threads, one after the other, and what each thread found."""
    final, olds = cells.copy(), np.zeros_like(cells)
    size = operation.width * operation.count
    unsigned = np.dtype(f"u{operation.width}")
    rounds = np.arange(len(cell)) if len(np.unique(cell)) < len(cell) else [slice(None)]
    for threads in rounds:
        here = cell[threads]
        old = final[here, :size].copy()
        operands = (np.ascontiguousarray(value[threads, :size]).view(unsigned) for value in values)
        final[here, :size] = operation.update(old.view(unsigned), *operands).view(np.uint8)
        olds[threads, :size] = old
    return final, olds


def _body(opcode: str, operation: atomics.Atomic, n: int) -> list[str]:
    register = {2: "%h", 4: "%r", 8: "%x"}[operation.width]
    bits, parts = 8 * operation.width, range(operation.count)
    offsets = [part * operation.width for part in parts]
    body = [
        "add.u64 %x40, %in, %wide; ld.global.b64 %x40, [%x40];",
        f"mul.lo.u64 %x41, %wide, {CELL // 8}; add.u64 %x42, %in, %x41; add.u64 %x42, %x42, {8 * n};",
    ]
    names = [[f"{register}{10 + 10 * i + part}" for part in parts] for i in range(operation.operands)]
    for i, operand in enumerate(names):
        for name, offset in zip(operand, offsets, strict=True):
            body.append(f"ld.global.b{bits} {name}, [%x42+{i * CELL * n + offset}];")
    body.append(f"mad.lo.u64 %x43, %x40, {CELL}, %out; add.u64 %x44, %out, %x41;")
    results = [f"{register}{1 + part}" for part in parts]
    target = f"{vector(results)}, " if opcode.startswith("atom") else ""
    shared = ".shared." in opcode
    if shared:
        body += [
            "mov.u32 %r151, cells; ld.global.v2.b64 {%x46, %x47}, [%x44];",
            f"mad.lo.u32 %r152, %thread, {CELL}, %r151; st.shared.v2.b64 [%r152], {{%x46, %x47}};",
            "cvt.u32.u64 %r150, %x40; mul.lo.u32 %r153, %block, %threads; sub.u32 %r153, %r150, %r153;",
            f"mad.lo.u32 %r153, %r153, {CELL}, %r151; bar.sync 0;",
        ]
    body.append(f"{opcode} {target}[{'%r153' if shared else '%x43'}], {', '.join(vector(name) for name in names)};")
    if shared:
        body.append("bar.sync 0; ld.shared.v2.b64 {%x46, %x47}, [%r152]; st.global.v2.b64 [%x44], {%x46, %x47};")
    if target:
        for name, offset in zip(results, offsets, strict=True):
            body.append(f"st.global.b{bits} [%x44+{CELL * n + offset}], {name};")
    return body
