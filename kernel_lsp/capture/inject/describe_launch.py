"""Describes the arguments of a kept launch as those of a function are described. Runs by itself, after the program.

Its one argument is a list, as JSON: of each tensor the name, the type, the number of elements, the address, the files
with the memory before and after, and where in them it begins. It prints the descriptions by name, and which changed.
"""

import json
import sys

import describe
import torch


def _main():
    found, mutated = {}, []
    for one in json.loads(sys.argv[1]):
        dtype = getattr(torch, one["dtype"])
        parts = [_part(one[when], one["start"], one["count"] * dtype.itemsize) for when in ("before", "after")]
        described = describe.describe_arguments({"x": torch.frombuffer(bytearray(parts[0]), dtype=dtype)})["x"]
        found[one["name"]] = dict(described, align=min(one["address"] & -one["address"], 16))
        mutated += [one["name"]] if parts[0] != parts[1] else []
    print(json.dumps(dict(arguments=found, mutated=mutated)))


def _part(path, start, size):
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(size)


_main()
