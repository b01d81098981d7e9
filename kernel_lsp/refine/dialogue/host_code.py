"""Translate C++ host code that launches kernels into Python: an answer's host function becomes `launch`.

A model trained on KernelBench writes a host function with PyTorch's C++ interface. For a plain CUDA file the judge owns
the host side, so sizes, grids and arguments are translated, statement by statement, into Python. Only the usual content
of such functions is supported; anything else is rejected by name, so that the model can write it in a simpler way.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kernel_lsp.refine.dialogue.answer import RejectedAnswer
from kernel_lsp.source.grammar import parse_cuda
from kernel_lsp.source.trees import text_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

# Statements that only check or synchronise are dropped: the judge does both.
_CHECKS = re.compile(
    r"TORCH_CHECK|CHECK_\w+|AT_ASSERTM?|AT_CUDA_CHECK|C10_CUDA\w*|cuda(?:GetLastError|PeekAtLastError|DeviceSynchronize)"
    r"|cudaStreamSynchronize|CUDA_CHECK|assert|cudaFuncSetAttribute|cudaFuncSetCacheConfig|printf|fprintf"
)
_STREAM = re.compile(r"cudaStream_t|getCurrentCUDAStream|CUDAGuard|DeviceGuard|cudaError_t|cudaGetLastError")
_DTYPES = {
    **dict.fromkeys(("kFloat", "kFloat32"), "torch.float32"),
    **dict.fromkeys(("kHalf", "kFloat16"), "torch.float16"),
    **dict.fromkeys(("kDouble", "kFloat64"), "torch.float64"),
    **dict.fromkeys(("kInt", "kInt32"), "torch.int32"),
    **dict.fromkeys(("kLong", "kInt64"), "torch.int64"),
    "kBFloat16": "torch.bfloat16",
    "kBool": "torch.bool",
    "kInt8": "torch.int8",
    "kUInt8": "torch.uint8",
}
_MAKERS = frozenset(("empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like"))
_METHODS = frozenset(
    ("numel", "dim", "contiguous", "clone", "view", "reshape", "flatten", "transpose", "t", "squeeze", "unsqueeze")
)
_MATHS = {"min": "min", "max": "max", "ceil": "math.ceil", "floor": "math.floor", "sqrt": "math.sqrt", "abs": "abs"}
_REAL = re.compile(r"\b(?:float|double)\b")
_SIZES = {"float": 4, "double": 8, "int": 4, "half": 2, "__half": 2, "float4": 16, "float2": 8, "char": 1}


def host_function(text: str, name: str) -> str:
    """Return the C++ function `name` of `text` as a Python function of the same name, which launches through `module`.

    Raises:
        RejectedAnswer: there is no such function, or it holds what cannot be said in Python here.
    """
    tree = parse_cuda(text.encode())
    translator = _Translator()
    for node in _of(tree.root_node, "function_definition"):
        declarator = next(_of(node, "function_declarator"), None)
        body = node.child_by_field_name("body")
        if declarator is None or body is None or declarator.child_by_field_name("declarator") is None:
            continue
        called = declarator.child_by_field_name("declarator")
        if called is None or text_of(called) != name:
            continue
        if "__global__" in text_of(node)[: body.start_byte - node.start_byte]:
            continue
        try:
            return translator.function(name, declarator, body)
        except RecursionError:
            raise RejectedAnswer(f"Expressions in the host function `{name}` are nested too deep.") from None
        except LookupError:  # an unfinished construct
            raise RejectedAnswer(f"The host function `{name}` cannot be parsed.") from None
    raise RejectedAnswer(f"The host function `{name}` that `forward` calls is not in the CUDA source.")


class _Translator:
    def __init__(self) -> None:
        self._real: set[str] = set()  # names of floating-point variables, for which `/` is true division
        self._shapes: set[str] = set()  # names of dim3 variables
        self._skipped: set[str] = set()  # names of streams and the like

    def function(self, name: str, declarator: "Node", body: "Node") -> str:
        parameters: list[str] = []
        for parameter in _of(declarator, "parameter_declaration", "optional_parameter_declaration"):
            named = parameter.child_by_field_name("declarator")
            if named is None:
                continue
            word = re.sub(r"[&*\s]", "", text_of(named))
            default = parameter.child_by_field_name("default_value")
            if _REAL.search(text_of(parameter)):
                self._real.add(word)
            parameters.append(word if default is None else f"{word}={self.expression(default)}")
        lines = self._block(body)
        return "\n".join(
            [f"def {name}({', '.join(parameters)}):", *(f"    {line}" for line in lines or ["return None"])]
        )

    def _block(self, body: "Node") -> list[str]:
        nodes = body.named_children if body.type == "compound_statement" else [body]
        return [line for node in nodes for line in self._statement(node)]

    def _statement(self, node: "Node") -> list[str]:
        match node.type:
            case (
                "comment" | "empty_statement" | "using_declaration" | "alias_declaration" | "static_assert_declaration"
            ):
                return []
            case "compound_statement":
                return self._block(node)
            case "declaration":
                return self._declaration(node)
            case "return_statement":
                value = node.named_children
                return [f"return {self.expression(value[0])}" if value else "return None"]
            case "if_statement":
                return self._if(node)
            case "expression_statement":
                return self._expression_statement(node)
            case _:
                raise self._refusal(node)

    def _expression_statement(self, node: "Node") -> list[str]:
        inner = node.named_children[0] if node.named_children else None
        if inner is None:
            return []
        text = text_of(inner)
        if inner.type == "call_expression":
            called = inner.child_by_field_name("function")
            kernel = called is not None and any(_of(inner, "kernel_call_syntax"))
            if not kernel and _CHECKS.match(text):
                return []
            if kernel:
                return [self._launch(inner)]
        if inner.type == "assignment_expression":
            left, right = inner.child_by_field_name("left"), inner.child_by_field_name("right")
            sign = inner.child_by_field_name("operator")
            if left is not None and right is not None:
                written = text_of(left)
                if written in self._skipped or _STREAM.search(text):
                    return []
                if re.fullmatch(r"\w+", written):
                    return [f"{written} {text_of(sign) if sign else '='} {self.expression(right)}"]
                if (part := re.fullmatch(r"(\w+)\.([xyz])", written)) and part[1] in self._shapes:
                    at = "xyz".index(part[2])
                    name = part[1]
                    return [f"{name} = (*{name}[:{at}], {self.expression(right)}, *{name}[{at + 1}:])"]
        raise self._refusal(node)

    def _declaration(self, node: "Node") -> list[str]:
        kind = node.child_by_field_name("type")
        written = text_of(kind) if kind else ""
        if _STREAM.search(text_of(node)):
            self._skipped |= {text_of(n) for n in _of(node, "identifier")}
            return []
        if "vector" in written or "array" in written:
            raise self._refusal(node)
        lines: list[str] = []
        for made in node.children_by_field_name("declarator"):
            name = made.child_by_field_name("declarator") if made.type != "identifier" else made
            value = made.child_by_field_name("value") if made.type == "init_declarator" else None
            if name is None:
                raise self._refusal(node)
            word = re.sub(r"[&*\s]|const|__restrict__", "", text_of(name))
            if not re.fullmatch(r"\w+", word):
                raise self._refusal(node)
            if _REAL.search(written) and "*" not in text_of(made):
                self._real.add(word)
            if written == "dim3":
                self._shapes.add(word)
            lines.append(f"{word} = {self._initial(node, made, written, value)}")
        return lines

    def _initial(self, node: "Node", made: "Node", kind: str, value: "Node | None") -> str:
        if kind == "dim3":
            # The parser takes `dim3 block(threads)` for a function declaration, and its sizes for parameters.
            parameters = made.child_by_field_name("parameters")
            holder = parameters or value
            if holder is None:
                return "(1, 1, 1)"
            if holder.type not in ("parameter_list", "argument_list", "initializer_list"):
                return self._as_shape(holder)
            given = [n for n in holder.named_children if n.type != "comment"]
            sizes = [text_of(n) if n.type == "parameter_declaration" else self.expression(n) for n in given]
            return f"({', '.join([*sizes, *['1'] * (3 - len(sizes))])})"
        if value is None:
            raise self._refusal(node)
        if value.type in ("argument_list", "initializer_list") and len(value.named_children) == 1:
            value = value.named_children[0]  # int n(5), int n{5}
        return self.expression(value)

    def _as_shape(self, node: "Node") -> str:
        text = self.expression(node)
        return text if text in self._shapes or (text.startswith("(") and "," in text) else f"({text},)"

    def _if(self, node: "Node") -> list[str]:
        condition = node.child_by_field_name("condition")
        then, other = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        if condition is None or then is None:
            raise self._refusal(node)
        lines = [f"if {self.expression(condition)}:", *self._indented(then)]
        if other is not None:
            inner = other.named_children[0] if other.type == "else_clause" else other
            lines += ["else:", *self._indented(inner)]
        return lines

    def _indented(self, node: "Node") -> list[str]:
        lines = self._block(node) if node.type == "compound_statement" else self._statement(node)
        return [f"    {line}" for line in lines or ["None"]]

    def _launch(self, call: "Node") -> str:
        syntax = next(_of(call, "kernel_call_syntax"))
        head = text_of(call).partition(text_of(syntax))[0].strip()
        settings = [self.expression(n) for n in syntax.named_children if text_of(n) not in self._skipped and
                    not _STREAM.search(text_of(n))]  # fmt: skip
        arguments = next((n for n in call.named_children if n.type == "argument_list"), None)
        if len(settings) < 2 or arguments is None:
            raise self._refusal(call)
        head = re.sub(r"\s*([<>:,])\s*", lambda m: ", " if m[1] == "," else m[1], head)
        target = f"module.{head}" if re.fullmatch(r"\w+", head) else f'module["{head}"]'
        shape = [s if s in self._shapes else f"({s},)" for s in settings[:2]]
        shared = [s for s in settings[2:3] if s != "0"]
        values = ", ".join(self.expression(n) for n in arguments.named_children if n.type != "comment")
        return f"{target}[{', '.join([*shape, *shared])}]({values})"

    def expression(self, node: "Node") -> str:
        """Return an expression in Python."""
        handler: Callable[[Node], str] | None = getattr(self, f"_of_{node.type}", None)
        if handler is None:
            raise self._refusal(node)
        return handler(node)

    def _of_identifier(self, node: "Node") -> str:
        text = text_of(node)
        if text in self._skipped:
            raise self._refusal(node)
        return text

    def _of_number_literal(self, node: "Node") -> str:
        text = text_of(node).replace("'", "")
        if re.fullmatch(r"0[xX][0-9a-fA-F]+[uUlL]*", text):
            return text.rstrip("uUlL")
        return text.rstrip("fFuUlL") if re.match(r"[\d.]", text) else text

    def _of_true(self, _: "Node") -> str:
        return "True"

    def _of_false(self, _: "Node") -> str:
        return "False"

    def _of_parenthesized_expression(self, node: "Node") -> str:
        return f"({self.expression(node.named_children[0])})"

    def _of_condition_clause(self, node: "Node") -> str:
        return self.expression(node.named_children[0])

    def _of_binary_expression(self, node: "Node") -> str:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = node.child_by_field_name("operator")
        if left is None or right is None or sign is None:
            raise self._refusal(node)
        written = {"&&": "and", "||": "or"}.get(text_of(sign), text_of(sign))
        if written == "/":
            written = "/" if self._is_real(left) or self._is_real(right) else "//"
        return f"{self.expression(left)} {written} {self.expression(right)}"

    def _is_real(self, node: "Node") -> bool:
        text = text_of(node)
        names = set(re.findall(r"[A-Za-z_]\w*", text))
        return bool(re.search(r"\d\.|\.\d|\d[eE]-?\d|\bfloat\b|\bdouble\b", text) or names & self._real)

    def _of_unary_expression(self, node: "Node") -> str:
        inner = node.child_by_field_name("argument")
        sign = node.child_by_field_name("operator")
        if inner is None or sign is None or text_of(sign) not in "-+!~":
            raise self._refusal(node)
        return f"{'not ' if text_of(sign) == '!' else text_of(sign)}{self.expression(inner)}"

    def _of_conditional_expression(self, node: "Node") -> str:
        parts = [node.child_by_field_name(name) for name in ("condition", "consequence", "alternative")]
        if any(part is None for part in parts):
            raise self._refusal(node)
        condition, then, other = (self.expression(part) for part in parts if part is not None)
        return f"({then} if {condition} else {other})"

    def _of_cast_expression(self, node: "Node") -> str:
        kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        if kind is None or value is None:
            raise self._refusal(node)
        return self._cast(text_of(kind), value)

    def _cast(self, kind: str, value: "Node") -> str:
        text = self.expression(value)
        if "*" in kind:
            return text  # a pointer cast to another type is still the same tensor
        return f"float({text})" if _REAL.search(kind) else f"int({text})"

    def _of_sizeof_expression(self, node: "Node") -> str:
        kind = re.sub(r"sizeof\s*\(?|\)|\bconst\b", "", text_of(node)).strip()
        if kind not in _SIZES:
            raise self._refusal(node)
        return str(_SIZES[kind])

    def _of_initializer_list(self, node: "Node") -> str:
        return f"({', '.join(self.expression(n) for n in node.named_children)},)"

    def _of_subscript_expression(self, node: "Node") -> str:
        owner = node.child_by_field_name("argument")
        index = next(_of(node, "subscript_argument_list"), None)
        if owner is None or index is None:
            raise self._refusal(node)
        return f"{self.expression(owner)}[{self.expression(index.named_children[0])}]"

    def _of_call_expression(self, node: "Node") -> str:
        called, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if called is None or given is None:
            raise self._refusal(node)
        arguments = [n for n in given.named_children if n.type != "comment"]
        if called.type == "field_expression":
            return self._method(node, called, arguments)
        name = text_of(called)
        if cast := re.fullmatch(r"(?:static_cast|reinterpret_cast|const_cast)\s*<(.*)>", name, re.S):
            return self._cast(cast[1], arguments[0])
        if name in ("int", "float", "size_t", "int64_t", "unsigned"):
            return self._cast(name, arguments[0])
        if name == "dim3":
            sizes = [self.expression(a) for a in arguments]
            return f"({', '.join([*sizes, *['1'] * (3 - len(sizes))])})"
        plain = re.sub(r"^(?:torch|at|std)::|<.*>$", "", name)
        if name.startswith(("torch::", "at::")) and plain in _MAKERS:
            return f"torch.{plain}({', '.join(self._made_with(a) for a in arguments)})"
        if plain in _MATHS:
            return f"{_MATHS[plain]}({', '.join(self.expression(a) for a in arguments)})"
        raise self._refusal(node)

    def _made_with(self, node: "Node") -> str:
        """Return an argument of a call that creates a tensor; options become keywords."""
        text = text_of(node)
        if node.type == "call_expression" and re.search(r"\boptions\(\)|TensorOptions|torch::dtype|device\(", text):
            owner = re.match(r"(\w+)\.options\(\)", text)
            dtype = re.search(r"\bdtype\(\s*(?:torch|at)::(\w+)\s*\)", text)
            if (dtype and dtype[1] not in _DTYPES) or not (owner or dtype):
                raise self._refusal(node)
            of = f"{owner[1]}.dtype" if owner else ""
            device = f"{owner[1]}.device" if owner else '"cuda"'
            return f"dtype={_DTYPES[dtype[1]] if dtype else of}, device={device}"
        return self.expression(node)

    def _method(self, node: "Node", called: "Node", arguments: list["Node"]) -> str:
        owner, field = called.child_by_field_name("argument"), called.child_by_field_name("field")
        if owner is None or field is None:
            raise self._refusal(node)
        name = re.sub(r"\s*<.*>$", "", text_of(field), flags=re.S).removeprefix("template ")
        of = self.expression(owner)
        given = [self.expression(a) for a in arguments]
        if name in ("data_ptr", "mutable_data_ptr", "const_data_ptr", "data"):
            return of
        if name in ("size", "stride") and len(given) == 1:
            return f"{of}.{'shape' if name == 'size' else 'stride()'}[{given[0]}]"
        if name == "sizes" and not given:
            return f"{of}.shape"
        if name in ("scalar_type", "dtype") and not given:
            return f"{of}.dtype"
        if name in _METHODS:
            return f"{of}.{name}({', '.join(given)})"
        raise self._refusal(node)

    def _refusal(self, node: "Node") -> RejectedAnswer:
        text = " ".join(text_of(node).split())
        shown = text if len(text) <= 100 else f"{text[:97]}..."
        return RejectedAnswer(
            f"This host code cannot be taken over: `{shown}`. Keep the host function to sizes, grids, "
            "`torch::empty_like`, launches with `<<<grid, block, shared>>>` and a return."
        )


def _of(node: "Node", *kinds: str) -> Iterator["Node"]:
    """Yield every node of these kinds below a node, in order of the text."""
    return (inner for inner in walk(node) if inner.type in kinds)
