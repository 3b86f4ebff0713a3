"""Training: one loop for every backend with gradients, and runs that resume from disk."""

from tinyxp.train.evaluation import evaluate
from tinyxp.train.loop import Report, fit
from tinyxp.train.optimizer import State
from tinyxp.train.recipe import Recipe

__all__ = ["Recipe", "Report", "State", "evaluate", "fit"]
