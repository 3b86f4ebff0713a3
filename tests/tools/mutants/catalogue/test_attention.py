"""The mutants of ``attention``."""

from tests.tools.mutants.judged import judge_mutants_of

test_patches_fit, test_expected_laws, test_detected, test_families = judge_mutants_of("attention")
