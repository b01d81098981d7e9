"""The content of a report, as data: the terminal, the page and the editor render the same view."""
