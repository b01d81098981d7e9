"""Talk with a model: prompts, parsers of its answers, feedback, history. No server is needed here."""
