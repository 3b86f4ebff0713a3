"""The laws of ``generation_limits``, on NumPy."""

from tests.testing.laws.judged import judge_laws_of

test_law = judge_laws_of("generation_limits")
