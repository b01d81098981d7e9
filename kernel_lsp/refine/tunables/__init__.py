"""Find the numbers of a kernel that can be changed without changing what it computes."""
