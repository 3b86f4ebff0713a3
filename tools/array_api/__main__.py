"""``python -m tools.array_api`` prints the page ``docs/array-api.md``."""

from .page import as_markdown
from .usage import array_api_usage

print(as_markdown(array_api_usage()), end="")
