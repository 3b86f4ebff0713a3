"""The laws, by what they judge; importing this package registers them all."""

from tinyxp.testing.laws import (  # noqa: F401
    caching,
    causality,
    compiled,
    drawing,
    equivariance,
    generation,
    losses,
    padding,
    positions,
    reference,
    sampling,
    structure,
    truncation,
)
