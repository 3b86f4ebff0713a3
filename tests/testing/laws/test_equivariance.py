"""The laws of ``equivariance``, on NumPy."""

from tests.testing.laws.judged import judge_laws_of

test_law = judge_laws_of("equivariance")
