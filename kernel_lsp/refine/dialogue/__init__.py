"""What is said to a model and what is made of its answers: prompts, parsers, feedback, history. No server here."""
