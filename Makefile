# make run, make test, make check: each sets up what it needs in .venv first.
SHELL := bash
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/ready
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run test check setup docs clean

run: $(READY)  ## the default experiment, to results/quickstart/report.html
	@snakemake --profile profiles/local
	@echo "results/quickstart/report.html"

test: $(READY)  ## every test that this machine can run
	@pytest

check: $(READY)  ## style, types, layers, workflow
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	snakefmt --check workflow
	snakemake --lint
	nnlo docs --check

docs: $(READY)  ## regenerate what is generated from the configuration's types
	@nnlo docs

setup: $(READY)  ## .venv with the pinned packages, MPI included

$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) not found; say which: make PYTHON=python3"; exit 2; }
	$(PYTHON) -m venv .venv
	pip install --quiet --disable-pip-version-check -r requirements.lock
	pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:  ## forget results and data (not .venv)
	rm -rf results data logs .snakemake
