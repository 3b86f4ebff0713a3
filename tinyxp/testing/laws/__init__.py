"""The laws, by what they judge; importing this package registers them all."""

from tinyxp.testing.laws import causality
