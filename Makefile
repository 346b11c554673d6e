# Everything that a developer or CI does. `make` alone prints this list.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
BIN := .venv/bin
LOGS := .state/logs
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest
RUN_FLAGS := $(if $(ONCE),--once)
SUITES := tests/unit tests/contract tests/integration tests/e2e tests/faults tests/browser
# Folders come and go with the work; git keeps no empty ones.
PRESENT = $(wildcard $(SUITES))

.PHONY: help
help: ## This list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(STAMP) ## Virtual environment with everything installed (once)

$(STAMP): pyproject.toml constraints.txt
	@mkdir -p $(LOGS)
	@echo "setup: installing into .venv (log: $(LOGS)/setup.log)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 setup" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv >$(LOGS)/setup.log 2>&1 \
	  || { cat $(LOGS)/setup.log >&2; rm -rf .venv; \
	       echo "No virtual environment could be made. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@{ $(BIN)/python -m pip install --quiet --disable-pip-version-check uv \
	   && $(BIN)/uv pip install --python $(BIN)/python -e '.[all,dev]' -c constraints.txt; } >>$(LOGS)/setup.log 2>&1 \
	  || { tail -n 20 $(LOGS)/setup.log >&2; echo "Installing failed: see $(LOGS)/setup.log" >&2; exit 1; }
	@touch $@
	@echo "setup: done"

.PHONY: fetch
fetch: $(STAMP) ## Kafka and Weaviate into the cache (once)
	@$(BIN)/headwater fetch

.PHONY: run
run: $(STAMP) ## Start everything, ingest a corpus, follow it (ONCE=1: without staying)
	@$(BIN)/headwater run $(RUN_FLAGS)

.PHONY: up
up: $(STAMP) ## Start Kafka, Weaviate and Headwater's processes
	@$(BIN)/headwater up

.PHONY: down
down: $(STAMP) ## Stop them; data stays
	@$(BIN)/headwater down

.PHONY: dagster
dagster: $(STAMP) ## Dagster's page: backfills, checks, schedules (starts what does not run)
	@$(BIN)/headwater dagster

.PHONY: test
test: $(STAMP) fetch ## All tests, in order: unit, contract, integration, e2e, faults, browser
	@mkdir -p $(LOGS)
	@echo "test: $(PRESENT)"
	@$(PYTEST) $(PRESENT) $(ARGS)

.PHONY: unit contract integration e2e faults browser
unit: $(STAMP) ## Tests that touch no service
contract: $(STAMP) ## One suite for every implementation of a port; golden payloads
integration: $(STAMP) fetch ## Tests on real Kafka and Weaviate
e2e: $(STAMP) fetch ## Whole processes
faults: $(STAMP) fetch ## Kills, stops, restores
browser: $(STAMP) fetch ## The web page
unit contract integration e2e faults browser:
	@$(PYTEST) tests/$@ $(ARGS)

.PHONY: faults-long
faults-long: $(STAMP) fetch ## What takes many minutes: a migration whose every part is killed
	@$(PYTEST) tests/faults -m long $(ARGS)

.PHONY: check
check: $(STAMP) ## Style, types, import arrows, dead code, dependencies
	@$(BIN)/ruff check schemas pipeline consumers dagster_project query_service infra tests
	@$(BIN)/ruff format --check schemas pipeline consumers dagster_project query_service infra tests
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/vulture
	@$(BIN)/deptry .

.PHONY: requirements
requirements: $(STAMP) ## Each requirement with its tests; fails on a bare one
	@$(BIN)/python -m infra.requirements_table

.PHONY: quality
quality: $(STAMP) fetch ## Retrieval and answers on the golden set
	@$(BIN)/headwater quality

.PHONY: bench
bench: $(STAMP) fetch ## Benchmarks, one JSON line each
	@$(BIN)/headwater bench

.PHONY: bench-quality
bench-quality: $(STAMP) ## Extraction against plain unstructured, retrieval by chunking strategy
	@$(BIN)/headwater bench quality $(ARGS)

.PHONY: bench-search
bench-search: $(STAMP) fetch ## Ranking: quality by part, time by stage; ARGS="--size large" for 100,000 chunks
	@$(BIN)/headwater bench search $(ARGS)

.PHONY: bench-migration
bench-migration: $(STAMP) fetch ## An encoder replaced under traffic; the last line counts wrong answers
	@$(BIN)/headwater bench migration $(ARGS)

.PHONY: sources-check
sources-check: $(STAMP) fetch ## Real source systems played through the whole product, one JSON line each
	@$(BIN)/python -m infra.sources_check $(ARGS)

.PHONY: snapshots
snapshots: $(STAMP) ## What extraction and chunking make of samples/formats, written to tests/snapshots
	@$(BIN)/python -m tests.snapshots

.PHONY: schemas
schemas: $(STAMP) ## JSON Schemas of every payload, written to schemas/json
	@$(BIN)/python -m schemas
