"""Writes what rewrites of several families need, from what `reading` found.

`launches` and `launch_sites` change launches, `insertions` puts text ahead of a kernel or a statement or around a body,
`leftovers` removes what nothing uses any longer, `inlining` names by their values, `spelling` spells polynomials.
`plain_forms` turns older forms of C into those that rewrites read.
"""
