"""What a report shows, as data: the terminal, the page and the editor render the same view."""
