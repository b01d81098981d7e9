"""Loads the tree-sitter grammars at first use, so that only code that parses pays for the import."""

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Tree

# Syntax that the CUDA grammar misreads; without it the shape of the tree is the same.
_UNKNOWN_TO_GRAMMAR = re.compile(
    rb"\b__(?:align|cluster_dims|block_size|maxnreg)__\s*\((?:[^()]|\([^()]*\))*\)"
    rb"|(?<=\])(?:\s*\b__(?:host|device)__\b)+(?=\s*[({])"
)
_BLANK = bytes(byte if byte in b"\r\n" else 32 for byte in range(256))


def blanked(text: bytes) -> bytes:
    """Return spaces in place of every byte but line breaks: same length, same lines."""
    return text.translate(_BLANK)


@cache
def cuda_grammar() -> "Language":
    """Return the tree-sitter language of CUDA C++."""
    import tree_sitter_cuda
    from tree_sitter import Language

    return Language(tree_sitter_cuda.language())


@cache
def python_grammar() -> "Language":
    """Return the tree-sitter language of Python."""
    import tree_sitter_python
    from tree_sitter import Language

    return Language(tree_sitter_python.language())


def parse_cuda(data: bytes) -> "Tree":
    """Return the syntax tree of UTF-8 CUDA source; its byte offsets are those of `data`.

    Attributes that the grammar does not know (`__align__(16)`, `__cluster_dims__(2)`, the `__device__` of a lambda) are
    blanked first, so a node's text must be cut from `data`, not taken from `node.text`.
    """
    from tree_sitter import Parser

    return Parser(cuda_grammar()).parse(_UNKNOWN_TO_GRAMMAR.sub(lambda m: blanked(m[0]), data))


def parse_python(data: bytes) -> "Tree":
    """Return the syntax tree of UTF-8 Python source; its byte offsets are those of `data`."""
    from tree_sitter import Parser

    return Parser(python_grammar()).parse(data)
