# The one entry point. `make run` and `make test` set up whatever is missing on a bare Debian 12.
SHELL := /bin/bash
PY := .venv/bin/python
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run setup test lint types docs bench soak deb lock fmt generate clean
help: ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: ## set up, start everything, run a sample task, stay in the foreground
	@scripts/setup.sh run && exec $(PY) scripts/run.py

setup: ## the developers' environment
	@scripts/setup.sh dev

lint: setup ## style, import contracts, spelling
	.venv/bin/ruff check . && .venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/codespell src tests docs scripts contributing README.md HACKING.md

types: setup ## strict type check
	.venv/bin/mypy

test: lint types ## everything, real containers included (under 20 minutes on two cores)
	$(PY) -m pytest -m "not alone" --numprocesses 3 --dist loadfile --no-loadscope-reorder
	$(PY) -m pytest -m alone

docs: setup ## the site, into site/
	.venv/bin/mkdocs build --strict

bench: setup ## figures beside the floor, in one run
	$(PY) -m bench

soak: setup ## the fault and leak campaigns with large counts
	SEXTON_SOAK=1 $(PY) -m pytest --timeout 7200 tests -m "slow"

deb: ## a Debian package, into dist/
	@scripts/setup.sh run && scripts/build_deb.sh

fmt: setup ## format and fix what can be fixed
	.venv/bin/ruff check --fix . ; .venv/bin/ruff format .

generate: setup ## the wire shapes from the service model, the made parts of the manual from the code
	$(PY) scripts/generate_wire.py
	$(PY) scripts/generate_docs.py

lock: setup ## new versions into the hashed locks
	scripts/lock.sh

clean: ## what this checkout made inside itself
	rm -rf .venv .tools .cache site dist .mypy_cache .ruff_cache .pytest_cache
