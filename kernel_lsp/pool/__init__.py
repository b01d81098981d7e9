"""Lanes that tasks run in, one for each GPU: those of this machine, or of the machines of a Ray cluster."""
