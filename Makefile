# make run, make test, make check: each target first installs its packages in .venv.
SHELL := bash
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/ready
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run test test-real test-all planted-defects check setup docs outputs vega site wheelhouse clean

# Tests run in parallel, so each test uses one core.
test test-real test-all planted-defects: export OMP_NUM_THREADS := 1
PART ?=

run: $(READY)  ## run the default experiment and write results/quickstart/report.html
	@snakemake --profile local
	@echo "results/quickstart/report.html"

test: $(READY)  ## run all tests but those of test-real and test-all: five minutes
	@pytest -n 2 --dist loadfile -m "not (real or exhaustive)"

test-real: $(READY)  ## run each real part once: Snakemake, Slurm, killed ranks, full disk, browser
	@python tests/helpers/real_lane.py

test-all: $(READY)  ## run all tests, also the exhaustive ones, or those of a folder: make test-all PART=launch
	@pytest -n 3 --dist loadfile tests/$(PART)

planted-defects: $(READY)  ## plant 40 mistakes in the code, one at a time, and print which test finds each
	@python tests/planted_defects/plant.py

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
	@python docs/seeds_page.py
	@python docs/interfaces_page.py

outputs: export OMP_NUM_THREADS := 1
outputs: $(READY)  ## run the commands of README.md, docs/index.md and docs/start again, and write what they print
	@NNLO_WRITE_OUTPUT=1 pytest -m "" -k "test_commands_run and (README or index or start)" tests/docs/test_blocks.py
	@git diff --stat -- README.md docs/index.md docs/start

vega: $(READY)  ## write the script that each page of the report carries, by the locked version of vl-convert
	@python tests/helpers/vega_script.py

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

wheelhouse: $(READY)  ## write NNLO and all its packages as wheels, for a site without a network
	@pip wheel --quiet --disable-pip-version-check --requirement requirements.lock --wheel-dir wheelhouse
	@pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir wheelhouse .
	@echo "pip install --no-index --find-links wheelhouse 'nnlo[mpich]'"

clean:  ## remove results, data, logs and the site (not .venv)
	rm -rf results data logs site .snakemake
