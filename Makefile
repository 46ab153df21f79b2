# `make demo` and `make test` set up all that they need; the rest is for those who work on Freshgate.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

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

check: setup ## Formatting, lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory generate
	git diff --exit-code -- crds docs helm tests/requirements.yaml

generate: setup ## Write the files that are made from code
	$(BIN)/python -m freshgate_crds.render crds
	$(BIN)/python docs/generate.py
	$(BIN)/python tests/support/freshgate_requirements.py

lock: ## Resolve the dependencies anew
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --all-extras --group dev pyproject.toml -o requirements.lock

cluster: ## Start a real single-node Kubernetes on this machine
	$(PYTHON) e2e/cluster/cluster.py up

cluster-down: ## Stop it and remove every trace
	$(PYTHON) e2e/cluster/cluster.py down

.PHONY: help setup demo test check generate lock cluster cluster-down
