"""Why two implementations of a decoder part."""

from tinyxp.diagnosis.doctor import Cause, Diagnosis, diagnose

__all__ = ["Cause", "Diagnosis", "diagnose"]
