# pgtick: everything a developer runs. `make` alone lists it.

PY := .venv/bin/python
# An installed PostgreSQL, 15 or newer, to test against besides the embedded one; empty if there is none.
SYSTEM_PG = $(shell ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5n | awk -F/ '$$5 >= 15' | tail -n 1)
MAIN_TESTS = $(addprefix tests/database/test_,schema.py create_job.py outcomes.py)
# REST, command line, pages and the programs around, of which a second PostgreSQL tells little that is new.
OUTER_TESTS = $(addprefix tests/database/test_,acting.py api_jobs.py api_outage.py api_schedules.py api_verbs.py archive.py auth.py \
	cli.py cli_jobs.py cli_nouns.py client.py contract.py dashboard.py embedded.py http_tasks.py trace.py)
# Each target remembers its failures by itself: several may run at the same time.
ONE_BY_ONE = $(PY) -m pytest -o cache_dir=.pytest_cache/$@
# Tests wait more than they compute: twice as many at once as there are cores here.
PYTEST = $(ONE_BY_ONE) --numprocesses=4 --dist=worksteal
# Tests of real processes live in real time: what failed while others wanted the same cores is tried once more, one by one.
or_one_by_one = $(1) || { echo "==> Once more, one by one: what failed"; $(1) --numprocesses=0 --last-failed --last-failed-no-failures=none; }
export RATE SECONDS QUICK PAGES MINUTES

.DEFAULT_GOAL := help
.PHONY: help run psql shell test test-slow slow-tests browser-tests older-tests lint format bench chaos screenshots migrate schema clean wipe

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/.stamp ## Start everything: PostgreSQL, migrations, API on 127.0.0.1:8080 (PORT), a worker. Ctrl-C stops it
	@$(PY) -m app.local run

psql: .venv/.stamp ## Open psql on the database of `make run` (or on DATABASE_URL)
	@$(PY) -m app.local psql

shell: .venv/.stamp ## Open a shell for `pgtick …` on that database, with DATABASE_URL set
	@$(PY) -m app.local shell

test: .venv/.stamp ## Run the tests on the embedded PostgreSQL, and the main ones on an installed one too (TESTS=path)
	@echo "==> Tests on $$($(PY) -m app.embedded)"
ifdef TESTS
	$(PY) -m pytest $(TESTS)
else
	$(call or_one_by_one,$(PYTEST) -m "not slow" --ignore=tests/browser tests)
ifneq ($(SYSTEM_PG),)
	@echo "==> Main tests on $$(PG_BINDIR=$(SYSTEM_PG) $(PY) -m app.embedded)"
	$(call or_one_by_one,PG_BINDIR=$(SYSTEM_PG) $(PYTEST) $(MAIN_TESTS))
endif
endif

test-slow: slow-tests browser-tests older-tests ## Run what takes minutes: slow tests, the dashboard in a browser, the tables' tests on an installed PostgreSQL

slow-tests: .venv/.stamp
	$(call or_one_by_one,$(PYTEST) -m slow tests)

browser-tests: .venv/.stamp
	$(call or_one_by_one,$(ONE_BY_ONE) tests/browser)

older-tests: .venv/.stamp
ifneq ($(SYSTEM_PG),)
	@echo "==> Database tests on $$(PG_BINDIR=$(SYSTEM_PG) $(PY) -m app.embedded)"
	$(call or_one_by_one,PG_BINDIR=$(SYSTEM_PG) $(PYTEST) tests/database $(addprefix --ignore=,$(MAIN_TESTS) $(OUTER_TESTS)))
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

chaos: .venv/.stamp ## Kill, freeze and cut things while jobs run, then check that none is lost (MINUTES=n)
	$(PY) -m tests.chaos

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
