"""What differs between languages: a folder for each, named as in `Language`, with one module for each room that asks.

Nothing imports these modules but `kernel_lsp.source.language.part_of`, by name.
"""
