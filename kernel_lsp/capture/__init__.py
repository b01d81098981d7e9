"""Runs a user's program, records its kernel launches with their arguments, and stores them as workloads."""
