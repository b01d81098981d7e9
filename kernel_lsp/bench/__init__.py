"""KernelBench runs: finds problems and candidates by name, judges them from a queue, keeps a ledger, adds up."""
