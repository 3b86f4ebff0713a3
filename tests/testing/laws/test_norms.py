"""The laws of ``norms``, on NumPy."""

from tests.testing.laws.judged import judge_laws_of

test_law = judge_laws_of("norms")
