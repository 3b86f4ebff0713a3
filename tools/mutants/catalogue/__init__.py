"""The mutants, by the part of a decoder that they change; importing this package registers them all."""

from . import (  # noqa: F401
    attention,
    blocks,
    caching,
    choosing,
    generating,
    losses,
    norms,
    positions,
    precision,
)
