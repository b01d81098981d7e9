"""Compile rewritten Triton kernels for sm_90, and run them in Triton's interpreter."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import tree_sitter_python
import triton
from tree_sitter import Language as Grammar
from tree_sitter import Parser
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernel_lsp.refine.rewrites.ast_cuda import field, span_of, text_of, walk
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel, Language, Parameter

_PARSER = Parser(Grammar(tree_sitter_python.language()))


def triton_kernel(text: str) -> tuple[SourceFile, Kernel]:
    """The last `@triton.jit` function of a text."""
    file = SourceFile(Path("kernel.py"), text)
    decorated = [n for n in walk(_PARSER.parse(text.encode()).root_node) if n.type == "decorated_definition"]
    function = field(decorated[-1], "definition")
    parameters = [
        Parameter(text_of(p).split(":")[0], text_of(p).partition(":")[2].strip(), "constexpr" in text_of(p))
        for p in field(function, "parameters").named_children
        if p.type != "comment"
    ]
    name, body = field(function, "name"), field(function, "body")
    spans = span_of(decorated[-1]), span_of(name), span_of(body)
    return file, Kernel(text_of(name), Language.TRITON, file.path, *spans, tuple(parameters))


def rewritten(rewrite, text: str) -> list[Candidate]:
    """All candidates for a Triton file."""
    file, kernel = triton_kernel(text)
    return list(rewrite(file, None, kernel))


def ptx(folder: Path, text: str, signature: dict[str, str], constants: dict[str, int]) -> str:
    """PTX of the last kernel of a text for sm_90."""
    path = folder / f"kernel_{abs(hash(text))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, triton_kernel(text)[1].name)
    types = {name: signature.get(name, "constexpr") for name in function.arg_names}
    source = ASTSource(function, types, {(function.arg_names.index(n),): v for n, v in constants.items()})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]


def interpret(folder: Path, text: str, script: str) -> None:
    """Run `script`, which may `import kernel`, in Triton's interpreter on the CPU."""
    (folder / "kernel.py").write_text(text)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
