"""KernelBench, judged: problems and candidates by their names, the queue, its ledger, and what it adds up to."""
