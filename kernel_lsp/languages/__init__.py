"""Implementations of the languages: a folder for each, named as in `Language`, with one module for each room that asks.

Only `kernel_lsp.source.language.part_of` imports these modules, by name.
"""
