# The one entry point. Needs git, make, curl and Python 3.11+ with pip; everything else is installed by itself:
# Python packages into .venv, uv and Go (where missing) and the control plane's programs into ~/.cache/trainer-operator.

ROOT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,\
  $(shell $(name) -c 'import sys; print("$(name)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)) python3)
BIN := $(ROOT)/.venv/bin
CODE := runtime trainer_operator models tests tools $(wildcard $(ROOT)/examples) $(wildcard $(ROOT)/benchmarks)
ARGS ?=
WORKERS ?= 2

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test retest unit integration faults explore models checkpoint-soak node-loss frameworks soak e2e e2e-assets fix lint types layers rules generate check bench bench-quick bench-runtime bench-assets assets venv clean
MAKEFLAGS += --no-print-directory

help: ## Show this list
	@grep -E '^[a-z0-9-]+:.*## ' '$(ROOT)/Makefile' | sed -E 's/:.*## /\t/' | expand -t 14

demo: assets ## Watch a training survive kills, lost nodes, scaling and a new leader (3 minutes)
	@cd '$(ROOT)' && exec '$(BIN)/trainer-operator' demo $(ARGS)

test: assets ## Run all tests, WORKERS (2) files at a time; ARGS="-k name" chooses
	@cd '$(ROOT)' && exec '$(BIN)/python' -m pytest -n $(WORKERS) --dist loadfile --durations 30 --durations-min 4 $(ARGS)

retest: assets ## Run what failed in the last run once more, one at a time
	@cd '$(ROOT)' && exec '$(BIN)/python' -m pytest -n 0 --last-failed --last-failed-no-failures none $(ARGS)

unit: venv ## Run the tests that need no control plane
	@cd '$(ROOT)' && exec '$(BIN)/python' -m pytest -m 'not integration' $(ARGS)

integration: assets ## Run the tests on the real control plane
	@cd '$(ROOT)' && exec '$(BIN)/python' -m pytest -m integration $(ARGS)

faults: assets ## Run the tests in which servers, connections and processes fail
	@cd '$(ROOT)' && exec '$(BIN)/python' -m pytest tests/faults tests/integration/runtime/test_failover.py $(ARGS)

explore: venv ## Search for faults that break the state machines, 20 times as long as the tests do
	@cd '$(ROOT)' && SEARCH=explore '$(BIN)/python' -m pytest tests/property $(ARGS)

models: venv ## Visit every state of the models of the checkpoint rules, and break them one by one (some minutes)
	@cd '$(ROOT)' && exec '$(BIN)/python' -m models

checkpoint-soak: venv ## Write and collect checkpoints side by side for ROUNDS (10000) rounds
	@cd '$(ROOT)' && ROUNDS='$(or $(ROUNDS),10000)' '$(BIN)/python' -m pytest -s -k contents_come_back \
	  tests/property/trainer_operator/test_writer_and_collector.py $(ARGS)

node-loss: assets ## Lose nodes with volumes under the real attach-detach controller (4 minutes)
	@cd '$(ROOT)' && NODE_LOSS=1 '$(BIN)/python' -m pytest tests/integration/trainer/test_lost_volumes.py -s $(ARGS)

frameworks: assets ## Train with PyTorch, JAX and TensorFlow, lose members, and run notebooks; installs all beside the project; RESULT=file keeps figures; ARGS="-m short" is CI's part
	@cd '$(ROOT)' && found="$$($(PYTHON) tools/frameworks.py $(INSTALL))"; code=$$?; \
	  FRAMEWORKS="$$found" FRAMEWORKS_RESULT='$(RESULT)' '$(BIN)/python' -m pytest tests/frameworks $(ARGS) && exit $$code

soak: assets ## Random faults under load for SECONDS (600) on OBJECTS (2000); SEED repeats a run, RECORD=1 stores it
	@cd '$(ROOT)' && SOAK_RECORD='$(RECORD)' SOAK_SECONDS='$(or $(SECONDS),600)' SOAK_SEED='$(SEED)' \
	  SOAK_OBJECTS='$(or $(OBJECTS),$(if $(SECONDS),500,2000))' '$(BIN)/python' -m pytest tests/soak -s $(ARGS)

e2e: venv ## Train in containers of a real kubelet, which is built the first time (root); ARGS="-m short" is CI's part
	@cd '$(ROOT)' && exec '$(BIN)/python' -m trainer_operator.devcluster.realnode $(E2E) -- \
	  '$(BIN)/python' -m pytest tests/e2e $(ARGS)

e2e-assets: venv ## Build what `make e2e` needs, together with the control plane
	@cd '$(ROOT)' && exec '$(BIN)/python' -m trainer_operator.devcluster.realnode --prepare-only $(E2E)

fix: venv ## Format, and fix what can be fixed
	@cd '$(ROOT)' && '$(BIN)/ruff' check --fix --quiet $(CODE); '$(BIN)/ruff' format $(CODE)

lint: venv ## Check style, format, spelling and module sizes
	@cd '$(ROOT)' && '$(BIN)/ruff' check $(CODE) && '$(BIN)/ruff' format --check $(CODE) \
	  && '$(BIN)/codespell' --skip='*.sum' --ignore-words-list=notin,nd $(CODE) README.md Makefile $(wildcard $(ROOT)/docs) && '$(BIN)/python' tools/modulesize.py

types: venv ## Check types
	@cd '$(ROOT)' && exec '$(BIN)/mypy'

layers: venv ## Check which module may import which
	@cd '$(ROOT)' && exec '$(BIN)/lint-imports' --no-cache

rules: venv ## Check that a test cites each rule of the runtime, of checkpoints and of the lifecycle
	@cd '$(ROOT)' && exec '$(BIN)/python' tools/rulecoverage.py

generate: venv ## Generate what is derived from the code: the CRDs
	@cd '$(ROOT)' && exec '$(BIN)/python' -m trainer_operator.api.generate

check: lint types layers rules test demo ## All that has to hold before a merge

bench: bench-assets ## Compare with other operators, everything, up to five times (100 minutes); goes on after an interruption
	@cd '$(ROOT)' && exec '$(BIN)/python' -m benchmarks.stock $(ARGS)

bench-quick: bench-assets ## Compare with other operators: a storm, idle, failures, once (10 minutes)
	@cd '$(ROOT)' && exec '$(BIN)/python' -m benchmarks.stock --quick $(ARGS)

bench-runtime: venv ## Measure the runtime against client-go, kopf and the limits of the machine (15 minutes)
	@cd '$(ROOT)' && exec '$(BIN)/python' -m benchmarks $(ARGS)

bench-assets: assets ## Build the operators that are compared with, and kwok (once; 10 minutes on two cores)
	@cd '$(ROOT)' && exec '$(BIN)/python' -m benchmarks.stock.peers >/dev/null

assets: ## Set up everything, the control plane's programs included (the first time: 8 minutes)
	@$(PYTHON) '$(ROOT)/tools/bootstrap.py' --assets

venv: ## Set up the virtual environment only
	@$(PYTHON) '$(ROOT)/tools/bootstrap.py'

clean: ## Remove what was made in this folder; the cache in ~/.cache/trainer-operator stays
	@cd '$(ROOT)' && rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@cd '$(ROOT)' && find runtime trainer_operator tests tools -name __pycache__ -prune -exec rm -rf {} +
