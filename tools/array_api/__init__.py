"""Which parts of the array API standard the model uses: a recording namespace and a page."""
