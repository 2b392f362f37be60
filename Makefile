# make reproduce   set up, then run, judge, draw and report everything at quick scale
# make check       lint, types and fast tests, in a minute or so; sets up the first time only
# make test        set up, then all checks
# make bench       the lab against PyTorch (in a virtual environment of its own)
# make performance docs/performance.md anew, from the same on a quiet machine
# make calibrate   how often verdicts are wrong on planted data
# make readme      recorded verdicts and pictures anew, and README's tables from them
# make docs        the documentation, into site/

# A suitable Python: 3.12 or newer gets jax >= 0.12, 3.11 gets jax 0.8.
PYTHON ?= $(shell for p in python3.12 python3.13 python3 python3.11 python; do \
	if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)
BIN := .venv/bin
JOBS ?= 2
# Type checks at run time compile what they check, and what it imports: keep the result for the next time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: reproduce check test setup browser lint types fast pytest examples bench performance calibrate readme docs clean

reproduce: setup
	$(BIN)/descentlab reproduce

# Two at once: pyright takes one core for as long as the fast tests take another.
check: $(if $(wildcard .venv/ready),,setup)
	@$(MAKE) --no-print-directory -j 2 lint types fast

test: setup browser lint types pytest examples

setup: .venv/ready

.venv/ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "descentlab needs Python 3.11 or newer with venv; none was found."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

browser: setup
	@$(BIN)/python tests/get_browser.py

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/pyright --pythonpath $(BIN)/python

fast:
	$(BIN)/python -m pytest -q -m "not slow" --durations=0 --durations-min=1

# The rooms that verdicts rest on are covered by tests to nine tenths, each.
pytest:
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --cov --cov-report=
	$(BIN)/coverage report --include='*/descentlab/judging/*' --fail-under=90
	$(BIN)/coverage report --include='*/descentlab/store/*' --fail-under=90

examples:
	for example in examples/*.py; do $(BIN)/python $$example || exit 1; done

bench: setup
	$(BIN)/python benchmarks/torch_environment.py
	$(BIN)/descentlab bench

performance: setup
	$(BIN)/python benchmarks/torch_environment.py
	$(BIN)/descentlab bench --write docs/performance.md

calibrate: setup
	$(BIN)/python benchmarks/calibrate_verdicts.py

readme: setup
	$(BIN)/python docs/refresh_readme.py

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo $(CURDIR)/site/index.html

clean:
	rm -rf .venv .venv-torch .pytest_cache .ruff_cache .hypothesis .coverage site
