# The two commands of a newcomer are `make demo` and `make run`; `make help` lists the others.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
LAYERS := config storage pipelines auth workers api web ops
SOURCES := $(LAYERS) client tests examples $(wildcard bench deploy)

# The first Python that is new enough; PYTHON=… chooses another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)

# Tests write thousands of small files that nobody reads again: in memory, where there is room.
IN_MEMORY := $(shell test -w /dev/shm && df -Pk /dev/shm 2>/dev/null \
	| awk 'NR == 2 && $$4 > 4000000 { print "TMPDIR=/dev/shm" }')

RUN_READY := $(VENV)/.ready-run
DEV_READY := $(VENV)/.ready-dev
# Bytecode of our own code: without it (PYTHONDONTWRITEBYTECODE) each process compiles it again, and
# each worker of pytest rewrites every module of tests.
COMPILED := $(VENV)/.compiled
# Of tests, with the asserts that pytest rewrites: its workers would each do that for all of them.
REWRITTEN := $(VENV)/.rewritten
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## List what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: setup
setup: $(DEV_READY) $(COMPILED) ## Make .venv with everything that running and testing need

.PHONY: demo
demo: $(COMPILED) ## Run the main job end to end and show it (FROM=<folder> LIMIT=<n>; KEEP=1 leaves it open)
	@$(BIN)/python -m ops demo $(if $(FROM),--from "$(FROM)") $(if $(LIMIT),--limit $(LIMIT)) $(if $(KEEP),--keep)

.PHONY: run
run: $(COMPILED) ## Run a store here until Ctrl-C (STORE_HOME, STORE_PORT)
	@exec $(BIN)/python -m ops run

# What holds or not by what is written, without running it.
CHECKS := $(foreach name,architecture docs conformance mutants,tests/test_$(name).py)

# Pytest that tells a test that failed by chance, of thousands, from one that fails.
RERUN := $(BIN)/python -m tests.rerun

# Tests wait half of their time: for processes that start or stop, time limits, tries that follow.
.PHONY: test
test: $(REWRITTEN) ## Run the tests, but for those of `make check`; they need neither root nor a server
	$(IN_MEMORY) $(RERUN) -n 4 --dist worksteal $(addprefix --ignore ,$(CHECKS))

PYTHONS ?= python3.11 python3.12 python3.13 python3.14

.PHONY: matrix
matrix: ## Run the tests with each of PYTHONS that is installed here
	@for python in $(PYTHONS); do \
		version=$$("$$python" -c 'import platform; print(platform.python_version())' 2>/dev/null) \
			|| { echo "matrix: no $$python here"; continue; }; \
		echo "matrix: Python $$version"; \
		$(MAKE) --no-print-directory test VENV=.venv-$$version PYTHON="$$python" || exit 1; \
		tested="$$tested $$version"; \
	done; test -n "$$tested" && echo "matrix: passed with$$tested"

REAL := $(BIN)/python -m tests.engines run

.PHONY: test-real
test-real: $(DEV_READY) $(COMPILED) ## Install and start the real engines, and run what is tested on them
	$(IN_MEMORY) $(REAL) --unsynced --tool hca --tool analysis --tool nextflow --tool snakemake \
		--tool drs-compliance-suite --tool openapi-python-client --tool openapi-typescript \
		--tool roc-validator --tool prometheus -- $(RERUN) -n 3 --dist worksteal \
		-p tests.engines.proof tests/storage tests/pipelines tests/workers tests/real \
		--ignore tests/real/browser
	@$(MAKE) --no-print-directory test-browser

# In processes of their own: Playwright leaves an event loop running in the thread of the tests.
.PHONY: test-browser
test-browser: $(DEV_READY) $(COMPILED) ## Test the web pages in Chromium, a part of test-real
	$(IN_MEMORY) $(REAL) --only s3 --tool chromium -- $(RERUN) -n 2 \
		--dist worksteal tests/real/browser

ENGINE ?= $(firstword $(foreach name,docker podman buildah,$(if $(shell command -v $(name)),$(name))))
IMAGE ?= consortium-store:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

.PHONY: image
image: ## Build the image (ENGINE=docker, podman or buildah; IMAGE=<name>; BASE=<image of Python>)
	@test -n "$(ENGINE)" || { echo "image: docker, podman or buildah is needed" >&2; exit 1; }
	$(ENGINE) build $(if $(BASE),--build-arg BASE=$(BASE)) --tag $(IMAGE) .

.PHONY: sbom
sbom: ## Write build/sbom.json, the CycloneDX bill of materials of the image (ENGINE, IMAGE)
	@test -n "$(filter-out buildah,$(notdir $(ENGINE)))" || { echo "sbom: docker or podman is needed" >&2; exit 1; }
	@mkdir -p build
	$(ENGINE) run --rm --network none $(IMAGE) python -m deploy.sbom > build/sbom.json

.PHONY: scan
scan: $(DEV_READY) ## Compare the pinned libraries with published vulnerabilities (needs the network)
	$(BIN)/python -m tests.scan

.PHONY: test-image
test-image: $(DEV_READY) $(COMPILED) ## Build the image, and run the demonstration against containers of it
	$(IN_MEMORY) $(REAL) --unsynced --only redis --only postgres --only s3 --only opensearch \
		--tool podman --tool platforms -- $(RERUN) -p no:randomly tests/image

.PHONY: test-systemd
test-systemd: $(DEV_READY) $(COMPILED) ## Boot a machine with systemd, and run the units on it (root, Linux)
	$(IN_MEMORY) $(REAL) --only redis --tool systemd -- $(BIN)/python -m pytest -p no:randomly tests/systemd

.PHONY: demo-real
demo-real: $(DEV_READY) $(COMPILED) ## The same demonstration with every part on a real engine
	$(REAL) --only redis --only postgres --only s3 --only gcs --only opensearch \
		-- $(BIN)/python -m tests.real

.PHONY: check
check: $(DEV_READY) $(COMPILED) ## Check format, lint, types, architecture, and that every bench runs
	@$(MAKE) --no-print-directory -j 2 --output-sync=line check-code check-runs

.PHONY: check-code
check-code: $(DEV_READY) ## Check format, lint and types only
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

.PHONY: check-runs
check-runs: $(DEV_READY) $(COMPILED) ## Check architecture, and that every bench runs, only
	$(BIN)/python -m pytest -p no:randomly $(CHECKS)
	$(BIN)/python -m bench --tiny

SEEDED := $(if $(SEED),--seed $(SEED))

.PHONY: drill
drill: $(DEV_READY) $(COMPILED) ## Fuzz, kill processes and hurt engines during deposits (SEED=<n>, DEEP=1 for more)
	$(if $(DEEP),STORE_TEST_DEPTH=deep $(BIN)/python -m pytest -n 2 -m hypothesis)
	$(BIN)/python -m tests.drill $(SEEDED)
	@$(MAKE) --no-print-directory -j 2 drill-answers drill-real drill-upgrade

.PHONY: drill-answers
drill-answers: $(DEV_READY) $(COMPILED) ## Of the drill, fuzzing and the comparisons of what is answered and stored
	$(BIN)/python -m tests.drill.matching $(SEEDED)
	$(IN_MEMORY) $(BIN)/python -m tests.drill.integrity $(SEEDED) \
		$(if $(DEEP),--objects 20000 --damaged 2000 --corruptions 100000)
	$(IN_MEMORY) $(BIN)/python -m tests.drill.fuzz $(SEEDED) --requests $(if $(DEEP),20000 --minutes 60,2000)

# Beside the others, as it waits for much of its time: an outage lasts two minutes.
.PHONY: drill-real
drill-real: $(DEV_READY) $(COMPILED) ## Of the drill, the part on real engines
	$(BIN)/python -m tests.drill --engines real $(SEEDED) $(if $(DEEP),--bundles 1000)

.PHONY: drill-upgrade
drill-upgrade: $(DEV_READY) $(COMPILED) ## Of the drill, the upgrade of the last release under load, and the way back
	$(BIN)/python -m tests.drill.upgrade $(SEEDED) --bundles $(if $(DEEP),500,25)

.PHONY: drill-hosts
drill-hosts: $(DEV_READY) $(COMPILED) ## Seven hosts on a bad network, upgraded one by one (root; SEED=<n>)
	$(BIN)/python -m tests.drill.hosts $(SEEDED)

.PHONY: drill-alerts
drill-alerts: $(DEV_READY) $(COMPILED) ## Provoke all 25 alerts of deploy/alerts.yml in running stores (STAGE=<name> for one)
	$(IN_MEMORY) $(BIN)/python -m tests.drill.alerts $(if $(STAGE),--stage $(STAGE)) $(SEEDED)

.PHONY: bench
bench: $(DEV_READY) $(COMPILED) ## Measure into bench/RESULTS.md (BESIDE=<commit> in turns with it)
	$(BIN)/python -m bench $(if $(BESIDE),--beside $(BESIDE))

.PHONY: bench-real
bench-real: $(DEV_READY) $(COMPILED) ## Measure on the real engines, beside what users take instead
	$(REAL) --tool s5cmd --tool rclone --tool aws --only redis --only postgres --only s3 \
		--only opensearch -- $(BIN)/python -m bench real

.PHONY: conformance
conformance: $(DEV_READY) ## Write build/conformance.md: the contract with the tests of each sentence
	$(BIN)/python -m tests.conformance

.PHONY: mutants
mutants: $(DEV_READY) $(COMPILED) ## Break the logic in the ways of tests/mutants.toml: a test must fail each time
	$(IN_MEMORY) $(BIN)/python -m tests.mutants

.PHONY: coverage
coverage: $(DEV_READY) $(COMPILED) ## Measure the coverage of the tests into build/coverage
	$(IN_MEMORY) $(BIN)/python -m pytest -n 4 --dist worksteal \
		$(foreach layer,$(LAYERS) store_client,--cov=$(layer)) --cov-report=html:build/coverage --cov-report=term:skip-covered

.PHONY: wheel
wheel: $(DEV_READY) ## Build the client's wheel into dist/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist ./client

.PHONY: docs
docs: $(DEV_READY) ## Write the tables of the documents from the code, and build the site
	$(BIN)/python -m tests.reference
	$(BIN)/mkdocs build --quiet --strict

.PHONY: screens
screens: $(DEV_READY) $(COMPILED) ## Write the pictures of terminal sessions into docs/images/terminal
	$(BIN)/python -m tests.client.terminal.pictures

.PHONY: screenshots
screenshots: $(DEV_READY) $(COMPILED) ## Write the screenshots of all pages into docs/images
	$(BIN)/python -m tests.engines install chromium
	$(BIN)/python -m tests.real.browser.screenshots

.PHONY: migration
migration: $(DEV_READY) ## Draft a migration of what the schema gained (MESSAGE=<text>)
	$(BIN)/python -m storage.catalog.migrate "$(MESSAGE)"

.PHONY: lock
lock: $(DEV_READY) ## Pin requirements*.in into requirements*.txt
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --no-strip-extras --generate-hashes \
		--no-header requirements.in -o requirements.txt
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --no-strip-extras --generate-hashes \
		--no-header requirements-dev.in -o requirements-dev.txt
	# It wants a tenacity that no supported Python can import.
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --generate-hashes \
		--no-header --override <(echo "tenacity>=8.2,<9") tests/engines/hca.in -o tests/engines/hca.txt
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --generate-hashes \
		--no-header tests/engines/drs-compliance-suite.in -o tests/engines/drs-compliance-suite.txt
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --generate-hashes \
		--no-header tests/engines/snakemake.in -o tests/engines/snakemake.txt
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --generate-hashes \
		--no-header --extra pandas tests/engines/analysis.in client/pyproject.toml -o tests/engines/analysis.txt
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --generate-hashes \
		--no-header tests/engines/openapi-python-client.in -o tests/engines/openapi-python-client.txt
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --generate-hashes \
		--no-header tests/engines/roc-validator.in -o tests/engines/roc-validator.txt
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --generate-hashes \
		--no-header tests/engines/platforms.in -o tests/engines/platforms.txt
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --generate-hashes \
		--no-header tests/engines/pip-audit.in -o tests/engines/pip-audit.txt
	# A program in a package: what the package itself needs is not wanted.
	$(BIN)/uv pip compile -q --python-version 3.11 --no-emit-index-url --generate-hashes \
		--no-header --no-deps tests/engines/kubectl.in -o tests/engines/kubectl.txt

.PHONY: clean
clean: ## Remove .venv and every cache
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
		echo "Python 3.11 or newer is needed and none was found; name one with PYTHON=…" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) has no venv module; install it (Debian, Ubuntu: python3-venv)" >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamps let an installation run again only when its lock has changed.
$(RUN_READY): requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(DEV_READY): requirements-dev.txt client/pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e ./client
	@touch $@ $(RUN_READY)

$(REWRITTEN): $(DEV_READY) $(COMPILED) $(shell find tests -name '*.py')
	@for half in "api auth client" "ops pipelines storage workers"; do \
		$(BIN)/python -m pytest --collect-only -q $$(printf 'tests/%s ' $$half) >/dev/null & \
	done; wait
	@touch $@

$(COMPILED): $(RUN_READY) $(shell find $(LAYERS) client examples -name '*.py')
	@$(BIN)/python -m compileall -q $(LAYERS) client/store_client examples
	@touch $@
