"""What the library raises besides plain ValueError; every one is a ValueError."""


class CheckpointError(ValueError):
    """A file that cannot be read as what it claims to be: truncated, corrupt, foreign or incomplete."""


class UnsupportedModelError(ValueError):
    """A model that this decoder does not compute; the message names the config key that asks for it."""
