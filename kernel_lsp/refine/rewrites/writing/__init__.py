"""Writes what rewrites of several families need, from what `reading` found.

`launches` and `launch_sites` change launches, `leftovers` removes what nothing uses any longer.
"""
