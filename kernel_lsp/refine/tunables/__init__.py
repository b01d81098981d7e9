"""The numbers of a kernel that can be turned without changing what it computes."""
