# pgtick: everything a developer runs. `make` alone lists it.

PY := .venv/bin/python
# An installed PostgreSQL, 15 or newer, to test against besides the embedded one; empty if there is none.
SYSTEM_PG = $(shell ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5n | awk -F/ '$$5 >= 15' | tail -n 1)
# Tests of real worker processes measure time: they run after the others, one at a time.
TIMED = $(wildcard tests/processes tests/browser)
JOBS ?= 2
export RATE SECONDS QUICK PAGES

.DEFAULT_GOAL := help
.PHONY: help run psql test lint format bench screenshots migrate schema clean wipe

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/.stamp ## Start everything: PostgreSQL, migrations, API on 127.0.0.1:8080 (PORT), a worker. Ctrl-C stops it
	@$(PY) -m app.local run

psql: .venv/.stamp ## Open psql on the database of `make run` (or on DATABASE_URL)
	@$(PY) -m app.local psql

test: .venv/.stamp ## Run all tests on the embedded PostgreSQL, and the database tests on an installed one (TESTS=path)
	@echo "==> Tests on $$($(PY) -m app.embedded)"
ifdef TESTS
	$(PY) -m pytest $(TESTS)
else
	$(PY) -m pytest --numprocesses=$(JOBS) $(TIMED:%=--ignore=%) tests
	$(if $(TIMED),$(PY) -m pytest $(TIMED))
ifneq ($(SYSTEM_PG),)
	@echo "==> Database tests on $$(PG_BINDIR=$(SYSTEM_PG) $(PY) -m app.embedded)"
	PG_BINDIR=$(SYSTEM_PG) $(PY) -m pytest --numprocesses=$(JOBS) tests/database
endif
endif

lint: .venv/.stamp ## Check style, formatting, types and the direction of imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

format: .venv/.stamp ## Format the code and sort imports
	$(PY) -m ruff check --fix --exit-zero --quiet .
	$(PY) -m ruff format .

bench: .venv/.stamp ## Measure on this machine (SCENARIO=name RATE=per-second SECONDS=n QUICK=1)
	$(PY) -m tests.bench $(SCENARIO)

screenshots: .venv/.stamp ## Take pictures of all pages of the dashboard into tests/browser/screenshots (PAGES=name,name)
	$(PY) -m tests.browser.screens

migrate: .venv/.stamp ## Bring the database of DATABASE_URL to the newest schema
	$(PY) -m alembic upgrade head

schema: .venv/.stamp ## Write migrations/schema.sql from a freshly migrated database
	$(PY) -m tests.support.schema

clean: ## Remove the virtual environment and caches; the database of `make run` stays
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

wipe: .venv/.stamp ## Delete the database of `make run`, with all its jobs
	@$(PY) -m app.local wipe

# The set-up: again whenever the dependencies change.
.venv/.stamp: pyproject.toml uv.lock
	@.ci/setup
