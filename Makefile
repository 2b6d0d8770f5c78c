# Needs python3 (3.11 or newer) and make. Every target sets up .venv first, again only when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test lint bench example clean

demo: $(READY) ## the main job: where speculation stops paying
	$(BIN)/python -m cluster_sim +sweep=spec_grid

test: $(READY)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## the budgets, measured on this machine
	$(BIN)/python tests/bench.py

example: $(READY) ## the committed example of a page, from conf/sweep/example.yaml
	rm -rf sweeps/example
	$(BIN)/python -m cluster_sim +sweep=example workload.requests=500 executor=serial output.dir=sweeps/example
	mkdir -p reports && cp sweeps/example/report.html reports/example.html

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cluster_sim needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)
