"""Self-contained HTML pages of a comparison and of a forward pass."""
