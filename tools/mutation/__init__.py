"""mutmut: what it runs, and the page of what it finds."""
