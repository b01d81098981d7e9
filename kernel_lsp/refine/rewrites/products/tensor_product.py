"""Multiply matrices of half precision on tensor cores where each thread of a kernel sums up one element (sm_80).

A thread of the naive kernel reads a row and a column from global memory, and multiplies one pair of elements at a time.
In the new one a block brings tiles of both operands to shared memory, by pieces of 16 bytes where these are whole and
aligned, and each warp multiplies its part by `mma.sync.m16n8k16` (PTX ISA 9.2, section 9.7.14.5.8), with fragments by
`ldmatrix`. Sums are float, whatever they were before, and tensor cores add up 16 products at once, so their last bits
differ. The kernel's own use of a sum is repeated for each sum of a thread. Then `warpgroup_products` applies on sm_90.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from textwrap import dedent, indent

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.products.block_products import TENSOR_KINDS
from kernel_lsp.refine.rewrites.products.naive_product import NaiveProduct, Operand, ProductAxis, find_product
from kernel_lsp.refine.rewrites.products.tile_product import element_of
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, assigned, bare, indent_at, names, whole_line
from kernel_lsp.refine.rewrites.reading.reductions import TYPES
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.writing.insertions import defined_before
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_FROM_FLOAT = {"f16": "__float2half", "bf16": "__float2bfloat16"}
_WIDENING = {"__half2float", "__bfloat162float", "float"}
_FUSED = {"fmaf", "__fmaf_rn", "__hfma"}
_DEPTH = 32
_LOAD = """\
// {comment}
__device__ inline void {name}(unsigned (&to)[4], const {kind}* from) {{
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(from));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4{turn}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(place));
}}

"""
_MULTIPLY = """\
// Adds the product of 16 x 16 and 16 x 8 elements.
__device__ inline void {name}(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.{code}.{code}.f32 "
        "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}}
"""


@dataclass(frozen=True)
class _Shape:
    """Rows and columns of a block's result, and of a warp's."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return 32 * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)


_SHAPES = (_Shape(128, 128, 64, 32), _Shape(64, 64, 32, 32))


def _require_product(product: NaiveProduct) -> None:
    """Refuse a sum of anything but one element times the other."""
    body, total = product.loop.body, product.total.name
    (change,) = (n for n in walk(body) if n.type == "assignment_expression")
    value = bare(field(change, "right"))
    if value.type == "call_expression" and text_of(field(value, "function")) in _FUSED:
        sides = field(value, "arguments").named_children[:2]
    else:
        if text_of(field(change, "operator")) == "=":
            value = _without(value, total)
        sides = _factors(value)
    found = {_side(product, side) for side in sides}
    if len(sides) != 2 or found != {"left", "right"}:
        raise NotApplicableError("a sum of something else than products of two elements")


def _without(value: Node, total: str) -> Node:
    """Return what a sum is added to."""
    if value.type == "call_expression" and text_of(field(value, "function")) == "__hadd":
        parts = field(value, "arguments").named_children
    else:
        plus = value.type == "binary_expression" and text_of(field(value, "operator")) == "+"
        parts = [field(value, "left"), field(value, "right")] if plus else []
    others = [bare(part) for part in parts if text_of(bare(part)) != total]
    if len(others) != 1:
        raise NotApplicableError("a sum in another form")
    return others[0]


def _factors(value: Node) -> list[Node]:
    value = bare(value)
    if value.type == "binary_expression" and text_of(field(value, "operator")) == "*":
        return [field(value, "left"), field(value, "right")]
    if value.type == "call_expression" and text_of(field(value, "function")) == "__hmul":
        return field(value, "arguments").named_children
    return []


def _side(product: NaiveProduct, node: Node) -> str | None:
    """Return the operand that a factor is an element of, as it is or in float."""
    node = bare(node)
    while node.type == "call_expression" and text_of(field(node, "function")) in _WIDENING:
        node = bare(field(node, "arguments").named_children[0])
    if node.type == "identifier":
        declared = [
            value
            for n in walk(product.loop.body)
            if n.type == "init_declarator"
            and text_of(field(n, "declarator")) == text_of(node)
            and (value := n.child_by_field_name("value")) is not None
        ]
        return _side(product, declared[0]) if len(declared) == 1 else None
    for name, operand in (("left", product.left), ("right", product.right)):
        if node.id in {n.id for n in operand.nodes}:
            return name
    return None


@dataclass(frozen=True)
class _Writer:
    """Writes a kernel for blocks of one shape."""

    tree: KernelTree
    product: NaiveProduct
    shape: _Shape

    @cached_property
    def names(self) -> dict[str, str]:
        """Return names that are free in the file, by what is wanted."""
        product = self.product
        wanted = [
            *("ROWS", "COLUMNS", "DEPTH", "THREADS", "lane", "warp", "warp_row", "warp_column", "sums", "left"),
            *("right", "load_matrices", "load_turned", "multiply", "source", "piece", "to", "at", "i", "j", "e"),
            f"first_{product.loop.variable.name}",
        ]
        found = {one: self.tree.fresh(one) for one in wanted}
        pointers = {"a": product.left.pointer.name, "b": product.right.pointer.name}
        return found | {side: self.tree.fresh(f"{name}_tile") for side, name in pointers.items()}

    @property
    def kind(self) -> str:
        """Return the type of the operands' elements."""
        return self.product.left.pointer.type.rstrip("*")

    @property
    def _code(self) -> str:
        return TENSOR_KINDS[self.tree.named_type(self.kind)]

    def edits(self) -> Iterator[Edit]:
        """Yield all edits of the file."""
        product, text = self.product, self.tree.file.text
        yield defined_before(self.tree, self._helpers())
        for node in {one.id: one for one in _numbering(product)}.values():
            yield Edit(whole_line(text, span_of(node)), "")
        pad, start = indent_at(text, product.guard.start_byte), product.guard.start_byte
        lines = (line if line.startswith("#") else pad + line for line in self._lines())
        yield Edit(Span(start, self._end), "\n".join(lines).removeprefix(pad))

    def _helpers(self) -> str:
        """Return the functions that the kernel needs."""
        n, product, found = self.names, self.product, ""
        turned = {product.left.outer_is_near, product.right.outer_is_near}
        if False in turned:
            comment = "Loads four matrices of 8 x 8, of which each thread names a row."
            found += _LOAD.format(comment=comment, name=n["load_matrices"], kind=self.kind, turn="")
        if True in turned:
            comment = "Loads four matrices of 8 x 8 turned; each thread names a row of them as they lie."
            found += _LOAD.format(comment=comment, name=n["load_turned"], kind=self.kind, turn=".trans")
        return found + _MULTIPLY.format(name=n["multiply"], code=self._code)

    @property
    def _end(self) -> int:
        return self.product.region[-1].end_byte if self.product.leaves else self.product.guard.end_byte

    def _lines(self) -> Iterator[str]:
        """Yield the lines that take the guard's place, with its indent left out."""
        product, n, shape = self.product, self.names, self.shape
        left, right = product.left, product.right
        step, first = product.loop.variable.name, n[f"first_{product.loop.variable.name}"]
        yield f"// Tensor cores multiply tiles of {left.pointer.name} and {right.pointer.name}."
        yield f"constexpr int {n['ROWS']} = {shape.rows}, {n['COLUMNS']} = {shape.columns}, {n['DEPTH']} = {_DEPTH};"
        yield f"constexpr int {n['THREADS']} = {shape.threads};"
        yield self._declared("a", left.outer_is_near, n["ROWS"])
        yield self._declared("b", right.outer_is_near, n["COLUMNS"])
        yield f"const int {n['lane']} = threadIdx.x % 32, {n['warp']} = threadIdx.x / 32;"
        across = shape.columns // shape.warp_columns
        yield f"const int {n['warp_row']} = {n['warp']} / {across} * {shape.warp_rows};"
        yield f"const int {n['warp_column']} = {n['warp']} % {across} * {shape.warp_columns};"
        yield f"float {n['sums']}[{shape.warp_rows // 16}][{shape.warp_columns // 8}][4] = {{}};"
        limit, depth = text_of(product.loop.limit), n["DEPTH"]
        yield f"for (int {first} = 0; {first} < {limit}; {first} += {depth}) {{"
        yield from (f"    {line}" for line in self._filled(left, product.row, "a", n["ROWS"], "y"))
        yield from (f"    {line}" for line in self._filled(right, product.column, "b", n["COLUMNS"], "x"))
        yield "    __syncthreads();"
        yield "#pragma unroll"
        yield f"    for (int {step} = 0; {step} < {depth}; {step} += 16) {{"
        yield from (line if line.startswith("#") else f"        {line}" for line in self._multiplied(step))
        yield "    }"
        yield "    __syncthreads();"
        yield "}"
        yield from self._stored()

    def _declared(self, side: str, turned: bool, count: str) -> str:
        """Return the declaration of a tile, with 8 spare elements a row, against bank conflicts."""
        rows, columns = (self.names["DEPTH"], count) if turned else (count, self.names["DEPTH"])
        return f"alignas(16) __shared__ {self.kind} {self.names[side]}[{rows}][{columns} + 8];"

    def _filled(self, one: Operand, axis: ProductAxis, side: str, count: str, block: str) -> Iterator[str]:
        """Yield the lines that fill a tile."""
        n, step = self.names, self.product.loop.variable.name
        near, far = (count, n["DEPTH"]) if one.outer_is_near else (n["DEPTH"], count)
        limits = {axis.name: text_of(axis.limit), step: text_of(self.product.loop.limit)}
        starts = {axis.name: f"blockIdx.{block} * {count}", step: n[f"first_{step}"]}
        along, across = (axis.name, step) if one.outer_is_near else (step, axis.name)
        source, tile, to, at, e = n["source"], n[side], n["to"], n["at"], n["e"]
        there = f"{across} < {limits[across]} && {along}"
        zero = f"{_FROM_FLOAT[self._code]}(0.0f)"
        piece = n["piece"]
        yield f"for (int {piece} = threadIdx.x; {piece} < {far} * {near} / 8; {piece} += {n['THREADS']}) {{"
        yield f"    const int {to} = {piece} / ({near} / 8), {at} = {piece} % ({near} / 8) * 8;"
        yield f"    const int {across} = {starts[across]} + {to}, {along} = {starts[along]} + {at};"
        yield f"    const {self.kind}* {source} = &{element_of(one, axis.name, step)};"
        yield f"    if ({there} + 8 <= {limits[along]} && reinterpret_cast<size_t>({source}) % 16 == 0) {{"
        yield f"        *reinterpret_cast<uint4*>(&{tile}[{to}][{at}]) = *reinterpret_cast<const uint4*>({source});"
        yield "    } else {"
        yield f"        for (int {e} = 0; {e} < 8; ++{e}) {{"
        yield f"            {tile}[{to}][{at} + {e}] = {there} + {e} < {limits[along]} ? {source}[{e}] : {zero};"
        yield "        }"
        yield "    }"
        yield "}"

    def _multiplied(self, step: str) -> Iterator[str]:
        """Yield the lines that multiply 16 columns of the left tile and 16 rows of the right one."""
        n, shape = self.names, self.shape
        rows, pairs = shape.warp_rows // 16, shape.warp_columns // 16
        left, right, i, j, lane = n["left"], n["right"], n["i"], n["j"], n["lane"]
        row, column = f"{n['warp_row']} + {i} * 16", f"{n['warp_column']} + {j} * 16"
        a = f"{n['a']}[{row} + {lane} % 16][{step} + {lane} / 16 * 8]"
        load_a, load_b = n["load_matrices"], n["load_matrices"]
        if self.product.left.outer_is_near:
            load_a = n["load_turned"]
            a = f"{n['a']}[{step} + {lane} / 16 * 8 + {lane} % 8][{row} + {lane} / 8 % 2 * 8]"
        b = f"{n['b']}[{column} + {lane} / 16 * 8 + {lane} % 8][{step} + {lane} / 8 % 2 * 8]"
        if self.product.right.outer_is_near:
            load_b, b = n["load_turned"], f"{n['b']}[{step} + {lane} % 16][{column} + {lane} / 16 * 8]"
        yield f"unsigned {left}[{rows}][4], {right}[{pairs}][4];"
        yield "#pragma unroll"
        yield f"for (int {i} = 0; {i} < {rows}; ++{i}) {{"
        yield f"    {load_a}({left}[{i}], &{a});"
        yield "}"
        yield "#pragma unroll"
        yield f"for (int {j} = 0; {j} < {pairs}; ++{j}) {{"
        yield f"    {load_b}({right}[{j}], &{b});"
        yield "}"
        yield "#pragma unroll"
        yield f"for (int {i} = 0; {i} < {rows}; ++{i}) {{"
        yield "#pragma unroll"
        yield f"    for (int {j} = 0; {j} < {2 * pairs}; ++{j}) {{"
        given = f"{right}[{j} / 2][{j} % 2 * 2], {right}[{j} / 2][{j} % 2 * 2 + 1]"
        yield f"        {n['multiply']}({n['sums']}[{i}][{j}], {left}[{i}], {given});"
        yield "    }"
        yield "}"

    def _stored(self) -> Iterator[str]:
        """Yield the lines that do with each sum what the kernel did with its own."""
        n, shape, product = self.names, self.shape, self.product
        i, j, e, lane = n["i"], n["j"], n["e"], n["lane"]
        counts = {i: shape.warp_rows // 16, j: shape.warp_columns // 8, e: 4}
        for depth, (name, count) in enumerate(counts.items()):
            yield "#pragma unroll"
            yield f"{'    ' * depth}for (int {name} = 0; {name} < {count}; ++{name}) {{"
        pad = " " * 12
        kinds = [text_of(field(axis.statement, "type")) for axis in (product.row, product.column)]
        row = f"blockIdx.y * {n['ROWS']} + {n['warp_row']} + {i} * 16 + {lane} / 4 + {e} / 2 * 8"
        column = f"blockIdx.x * {n['COLUMNS']} + {n['warp_column']} + {j} * 8 + {lane} % 4 * 2 + {e} % 2"
        yield f"{pad}const {kinds[0]} {product.row.name} = {row};"
        yield f"{pad}const {kinds[1]} {product.column.name} = {column};"
        tests = (f"{axis.name} < {text_of(axis.limit)}" for axis in (product.row, product.column))
        yield f"{pad}if ({' && '.join(tests)}) {{"
        yield from indent(dedent(self._region()).strip("\n"), f"{pad}    ").split("\n")
        for depth in (3, 2, 1, 0):
            yield f"{'    ' * depth}}}"

    def _region(self) -> str:
        """Return the statements for one element, with its sum in place of the loop."""
        product, data, n = self.product, self.tree.file.text.encode(), self.names
        begin = data.rfind(b"\n", 0, product.region[0].start_byte) + 1
        end, total = product.region[-1].end_byte, product.total
        value = f"{n['sums']}[{n['i']}][{n['j']}][{n['e']}]"
        if total.type in TENSOR_KINDS:
            value = f"{_FROM_FLOAT[TENSOR_KINDS[total.type]]}({value})"
        gone = [node for node in product.unused if node != total.declaration]
        spans = [(whole_line(self.tree.file.text, span_of(node)), "") for node in gone]
        if product.hoisted and total.declaration is not None:
            later = any(total.name in assigned(node) for node in product.region if node != product.loop.node)
            spans.append(
                (span_of(total.declaration), f"{'' if later else 'const '}{total.type} {total.name} = {value};")
            )
            spans.append((whole_line(self.tree.file.text, span_of(product.loop.node)), ""))
        else:
            spans.append((span_of(product.loop.node), f"{total.name} += {value};"))
        moved = [
            Edit(Span(max(span.start, begin) - begin, min(span.end, end) - begin), text)
            for span, text in spans
            if begin <= span.start < end
        ]
        return apply_edits(data[begin:end].decode(), moved)


def _numbering(product: NaiveProduct) -> tuple[Node, ...]:
    """Return the declarations of a thread's row and column, and what only served for these."""
    return (*product.feeding, product.row.statement, product.column.statement)


def _launched(product: NaiveProduct, shape: _Shape, site: LaunchSite) -> list[Edit]:
    counts = [site.spelled(axis.amount) for axis in (product.column, product.row)]
    sides = zip(counts, (shape.columns, shape.rows), strict=True)
    x, y = (site.ceil_div(count, by) if count is not None else None for count, by in sides)
    if x is None or y is None:
        raise NotApplicableError("the size of the result is not known at a launch")
    return [site.with_grid(x, y), site.with_block(str(shape.threads), "1")]


def _find(tree: KernelTree) -> NaiveProduct:
    """Return a kernel as a product of matrices of half precision."""
    product = find_product(MemoryUse(Scopes(tree)), {*TYPES, *TENSOR_KINDS})
    kinds = {tree.named_type(one.pointer.type.rstrip("*")) for one in (product.left, product.right)}
    if len(kinds) != 1 or not kinds <= TENSOR_KINDS.keys():
        raise NotApplicableError("operands of other types")
    total = tree.named_type(product.total.type)
    if total != "float" and total not in kinds:
        raise NotApplicableError("a sum of another type")
    _require_product(product)
    axes = {product.row.name, product.column.name}
    gone = {n.id for n in _numbering(product)}
    ahead = [n for n in tree.body.named_children if n.type == "declaration" and n.start_byte < product.guard.start_byte]
    if any(names(node) & axes for node in ahead if node.id not in gone):
        raise NotApplicableError("values of a row or column ahead of the guard")
    return product


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with blocks of 128 x 128 and of 64 x 64 elements."""
    if device.capability < (8, 0):
        return
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.collective(tree.body) or kernel.launch_bounds:
            return
        product, sites = _find(tree), find_launches(tree, workload_file)
        if sites is None:
            return
        for shape in _SHAPES:
            edits = list(_Writer(tree, product, shape).edits())
            files = relaunched(tree, workload_file, sites, edits, partial(_launched, product, shape))
            label = f"tensor cores, {shape.rows} x {shape.columns} elements a block"
            yield Candidate(kernel.language, *files, label, "rewrite:tensor_product")
    except LookupError:
        return
