"""The process that trains: the only one that imports torch, transformers, peft and TRL for that."""
