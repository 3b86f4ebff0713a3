"""How fast each backend runs a model, beside what this machine can do at all."""
