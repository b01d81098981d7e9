"""Runs a user's program, sees which kernels it launches and with what, and keeps that as workloads."""
