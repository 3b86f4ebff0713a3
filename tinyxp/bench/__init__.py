"""How fast each backend runs a model, compared with the limits of this machine."""
