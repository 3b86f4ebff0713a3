"""Causes that no list can hold, read off the side's values: numbers, masks, rows, the order of layers."""

from tinyxp.doctor.fits.masks import visibility
from tinyxp.doctor.fits.numbers import branch, dropout, eps, factor, theta
from tinyxp.doctor.fits.order import layer_order
from tinyxp.doctor.fits.parameters import bias, elsewhere, looked_up, norm_weights, other_weights

FITS = (theta, eps, dropout, visibility, looked_up, bias, elsewhere, branch, factor, norm_weights)

__all__ = ["FITS", "dropout", "layer_order", "other_weights"]
