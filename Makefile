# make run, make test, make check: each target first installs its packages in .venv.
SHELL := bash
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/ready
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run test test-fast test-slow test-nightly check setup docs site clean

SLOW := slow or slurm or browser or snakemake
STARTS := mpi or processes
TWO := -n 2 --dist loadfile
# One of the three processes mostly waits for Slurm.
THREE := -n 3 --dist loadfile
# Tests run in parallel, so each test uses one core.
test test-fast test-slow test-nightly: export OMP_NUM_THREADS := 1

run: $(READY)  ## run the default experiment and write results/quickstart/report.html
	@snakemake --profile profiles/local
	@echo "results/quickstart/report.html"

test: $(READY)  ## run all tests except those of test-slow, including tests with MPI ranks
	@pytest $(TWO) -m "not ($(SLOW) or nightly)"

test-fast: $(READY)  ## run the quick tests that start no processes
	@pytest $(TWO) --no-starts -m "not ($(SLOW) or $(STARTS) or long or nightly)"

test-slow: $(READY)  ## run the tests that `test` excludes: crash matrix, Slurm, browser, workflows; those that cannot run are skipped
	@pytest $(THREE) -m "($(SLOW)) and not nightly"

test-nightly: $(READY)  ## run the tests that all others leave out: short runs of all benchmarks, more cases of slow tests
	@pytest $(TWO) -m nightly

check: $(READY)  ## check style, types, import layers, workflow, generated files and names
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	snakefmt --check workflow
	snakemake --lint
	nnlo docs --check
	python -m pytest --quiet tests/conventions tests/docs/test_paths_in_docs.py tests/docs/test_site.py

docs: $(READY)  ## regenerate the files that are generated from the configuration's types
	@nnlo docs

site: export NO_MKDOCS_2_WARNING := 1
site: $(READY)  ## the documentation as a site, in site/index.html; a broken link or anchor is an error
	@mkdocs build --strict  # not --quiet, with which warnings do not count
	@echo "site/index.html"

setup: $(READY)  ## create .venv with the pinned packages, including MPI

$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) not found; set the Python interpreter, for example: make PYTHON=python3"; exit 2; }
	$(PYTHON) -m venv .venv
	pip install --quiet --disable-pip-version-check -r requirements.lock
	pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:  ## remove results, data, logs and the site (not .venv)
	rm -rf results data logs site .snakemake
