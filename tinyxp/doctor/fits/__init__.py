"""Causes that no list can hold, read off the side's values: numbers, masks, rows, the order of layers."""

from tinyxp.doctor.fits.masks import fit_mask
from tinyxp.doctor.fits.numbers import fit_branch, fit_dropout, fit_factor, fit_number
from tinyxp.doctor.fits.order import fit_layer_order
from tinyxp.doctor.fits.parameters import (
    find_other_weights,
    fit_bias,
    fit_norm_weight,
    fit_other_matrix,
)
from tinyxp.doctor.fits.rows import fit_rows

FITS = (
    fit_number,
    fit_dropout,
    fit_mask,
    fit_rows,
    fit_bias,
    fit_other_matrix,
    fit_branch,
    fit_factor,
    fit_norm_weight,
)
"""From the most specific to the most general."""

__all__ = ["FITS", "find_other_weights", "fit_layer_order"]
