"""Starts, fits and gates the local model server. Filled by the work on the model."""
