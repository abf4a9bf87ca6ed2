# A fresh machine needs python3 (3.11 or newer, with venv) and make; everything else is installed into .venv.
#
#   make serve   export the shipped checkpoints and serve them on port 8000, with a general translator if it can be fetched
#   make test    format, lint, types and tests
#   make help    all targets

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

HOST ?= 127.0.0.1
PORT ?= 8000
# Half of the tests' time is waiting for servers, so that two processes pay on one core too.
TEST_PROCESSES ?= 2

is_new_enough := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13; do \
	"$$python" -c '$(is_new_enough)' 2>/dev/null && { echo "$$python"; break; }; done)

# A GPU is used where the driver answers. `make serve DEVICE=cpu` leaves it alone.
ifndef DEVICE
DEVICE := $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
endif
# Of the processors that a wheel has kernels for.
ARCHITECTURE ?= all
PRECISION ?= $(if $(filter gpu,$(DEVICE)),fp16,int8)
provider := $(if $(filter gpu,$(DEVICE)),cuda,cpu)

venv := .venv
attendant := $(venv)/bin/attendant
# Makes what is not up to date and says so; see there what it does.
install = $(or $(PYTHON),$(error Attendant needs Python 3.11 or newer)) -m deploy.install

checkpoints := $(notdir $(patsubst %/,%,$(dir $(wildcard models/checkpoints/*/config.json))))
bundles := $(patsubst %,build/bundles/%-$(PRECISION),$(checkpoints))
# Translators of general text, which are not shipped: `make serve` fetches the first that it can, once, and goes on without it offline.
pulled := $(addprefix build/bundles/,$(addsuffix -$(PRECISION),firefox-en-fr bergamot-en-pt))

.PHONY: help serve models bundles develop unit test test-full test-all docs labs bench bench-smoke fuzz schemathesis simulate soak stop-servers wheel lock audit clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

serve: models ## export the shipped checkpoints where needed, fetch firefox/en-fr or bergamot-en-pt, serve them
	$(attendant) serve $(bundles) $(shell ls -d $(pulled) 2>/dev/null) --device $(provider) --host $(HOST) --port $(PORT)

models:
	@$(install) --extras $(DEVICE),speech $(bundles) $(pulled)

bundles: ## export the shipped checkpoints where needed
	@test -n "$(strip $(checkpoints))" || { echo "models/checkpoints holds no checkpoint"; exit 2; }
	@$(install) --extras $(DEVICE) $(bundles)

develop: ## install everything to change, train and test: an editable installation with torch
	@$(install) --extras $(DEVICE),speech,train,dev

# Of xdist's schedulers, worksteal ends a run whose worker crashed, and runs each test once.
pytest := $(venv)/bin/pytest --numprocesses $(TEST_PROCESSES) --dist worksteal
# Python keeps what it compiled, even where the environment asks it not to: each process compiles all modules otherwise.
unexport PYTHONDONTWRITEBYTECODE

unit: develop ## tests without torch, ONNX Runtime or a server: texts, documents, protocols, decoding, scheduling
	$(pytest) --unit

lint := $(venv)/bin/ruff format --check . && $(venv)/bin/ruff check . && $(venv)/bin/mypy

# Both are run to their ends, so that one run shows everything that is wrong.
test: develop ## what a change must pass: format check, lint, types, tests
	@mkdir -p build; { $(lint); } >build/lint.log 2>&1 & lint=$$!; \
	status=0; $(pytest) --durations 20 || status=$$?; \
	wait $$lint || status=$$?; cat build/lint.log; exit $$status

test-full: develop ## what `make test-all` adds: whole grids, and servers that are starved and killed, one at a time
	$(pytest) --durations 20 -m "full and not servers"
	$(venv)/bin/pytest --durations 20 -m servers

test-all: test test-full ## all tests but those marked slow, image or cluster

docs: develop ## the documentation as a site: build/site
	NO_MKDOCS_2_WARNING=1 $(venv)/bin/mkdocs build --quiet --strict --config-file deploy/site/mkdocs.yml
	@echo "$(venv)/bin/python -m http.server --directory build/site shows the site at http://localhost:8000"

labs: develop ## run the notebooks of docs/labs, as they are: a few minutes
	PATH="$(CURDIR)/$(venv)/bin:$$PATH" $(venv)/bin/jupyter execute docs/labs/*.ipynb

bench: bundles ## tokens per second of the bare engine, one line of JSON for each bundle
	@for bundle in $(bundles); do $(attendant) bench $$bundle --device $(provider) --json; done

smoke_bundles := $(addprefix build/bundles/transformer-en-fr-,int8 fp32)
bench-smoke: ## fail where a ratio of speeds has lost more than a fifth of its baseline
	@$(install) --extras $(DEVICE) $(smoke_bundles)
	$(venv)/bin/python -m loadtest.bench.smoke $(smoke_bundles)

fuzz: develop ## made-up input for every parser of outside bytes, FUZZ_SECONDS each (60), and FUZZ_BODIES with entities (10000)
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} FUZZ_BODIES=$${FUZZ_BODIES:-10000} $(venv)/bin/pytest tests/fuzz --timeout 3600

schemathesis: develop ## SCHEMATHESIS_EXAMPLES (2000) requests made up from /openapi.json
	SCHEMATHESIS_EXAMPLES=$${SCHEMATHESIS_EXAMPLES:-2000} $(venv)/bin/pytest tests/serving/api/test_openapi.py --timeout 3600

simulate: develop ## STEPS (10 million) of simulated engines with clients that come, leave and fail
	$(venv)/bin/python -m tests.serving.engine.simulation.run --steps $${STEPS:-10000000}

soak: develop ## half an hour (MINUTES) of mixed clients and a kill every two minutes; writes build/soak.html
	$(venv)/bin/python -m tests.soak.run --minutes $${MINUTES:-30} --output build/soak.html

stop-servers: develop ## SIGNALS (200) to servers at random stages of their lives, with clients: hours
	$(venv)/bin/python -m tests.serving.deployments.stopping --signals $${SIGNALS:-200}

# python -m build takes hatchling and ziglang from .venv, so that a wheel is built without a network, too.
wheel: develop ## the distribution in dist/ with all kernels, for glibc 2.17 and newer (ARCHITECTURE=aarch64: for Arm)
	ATTENDANT_BUILD_KERNELS=$(ARCHITECTURE) $(venv)/bin/python -m build --no-isolation --wheel --sdist --outdir dist .
	$(venv)/bin/twine check --strict dist/*
	for wheel in dist/*.whl; do $(venv)/bin/auditwheel show "$$wheel"; done

lock: develop ## the versions and hashes of the image's packages anew, from pyproject.toml
	$(venv)/bin/pip install --quiet uv
	PATH="$(CURDIR)/$(venv)/bin:$$PATH" $(venv)/bin/python deploy/docker/lock.py

audit: develop ## known weaknesses of the installed packages
	$(venv)/bin/pip-audit --skip-editable

clean: ## remove the bundles and the virtual environment
	rm -rf build dist $(venv)
