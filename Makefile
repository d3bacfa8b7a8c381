# make run, make test, make check: each sets up what it needs in .venv first.
SHELL := bash
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/ready
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run test test-fast test-slow check setup docs site clean

SLOW := slow or slurm or browser or snakemake
STARTS := mpi or processes
TWO := -n 2 --dist loadfile
# what waits for Slurm runs beside two others
THREE := -n 3 --dist loadfile
# a test leaves the other cores to those beside it
test test-fast test-slow: export OMP_NUM_THREADS := 1

run: $(READY)  ## the default experiment, to results/quickstart/report.html
	@snakemake --profile profiles/local
	@echo "results/quickstart/report.html"

test: $(READY)  ## every test but those of test-slow, on real MPI ranks, too
	@pytest $(TWO) -m "not ($(SLOW))"

test-fast: $(READY)  ## those that start no processes and are quick
	@pytest $(TWO) --no-starts -m "not ($(SLOW) or $(STARTS) or long)"

test-slow: $(READY)  ## what `test` leaves out: crash matrix, Slurm, browser, workflows; where they can run
	@pytest $(THREE) -m "$(SLOW)"

check: $(READY)  ## style, types, layers, workflow, names
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	snakefmt --check workflow
	snakemake --lint
	nnlo docs --check
	python -m pytest --quiet tests/conventions tests/docs/test_paths_in_docs.py tests/docs/test_site.py

docs: $(READY)  ## regenerate what is generated from the configuration's types
	@nnlo docs

site: export NO_MKDOCS_2_WARNING := 1
site: $(READY)  ## the documentation as a site, in site/index.html; a broken link or anchor is an error
	@mkdocs build --strict  # not --quiet, with which warnings do not count
	@echo "site/index.html"

setup: $(READY)  ## .venv with the pinned packages, MPI included

$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) not found; say which: make PYTHON=python3"; exit 2; }
	$(PYTHON) -m venv .venv
	pip install --quiet --disable-pip-version-check -r requirements.lock
	pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:  ## forget results and data (not .venv)
	rm -rf results data logs site .snakemake
