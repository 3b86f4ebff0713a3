"""The laws of ``any_decoder``, on NumPy."""

from tests.testing.laws.judged import judge_laws_of

test_law = judge_laws_of("any_decoder")
