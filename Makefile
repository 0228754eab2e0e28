# Every target installs what it needs; a second run is quick. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
NEIGHBOURS := .venv-neighbours
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -qq

.PHONY: help venv neighbours system system-servers guest-image demo bench test test-fast lint clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

venv: $(VENV)/.stamp ## .venv: the project, its libraries, and the tools of its tests

$(VENV)/.stamp: requirements.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || {
		echo "Kilonova needs Python 3.11, 3.12 or 3.13; $(PYTHON) is $$("$(PYTHON)" --version). Name one: make PYTHON=python3.12 ..." >&2
		exit 1
	}
	PYTHON="$(PYTHON)" tools/install-system-packages
	echo "venv: installing the libraries into $(VENV) (some minutes)"
	[ -x $(BIN)/pip ] || "$(PYTHON)" -m venv $(VENV)
	$(PIP) install -r requirements.lock
	$(PIP) install --no-deps --editable .
	touch $@

# The binding to libvirt is compiled against the host's libvirt: only where its headers are.
$(VENV)/.stamp-libvirt: requirements-libvirt.lock $(VENV)/.stamp | system
	@if ! pkg-config --exists libvirt 2>/dev/null; then
		echo "venv: no libvirt headers (libvirt-dev) here: guests are simulated"
		exit 0
	fi
	$(PIP) install -r requirements-libvirt.lock
	touch $@

neighbours: $(NEIGHBOURS)/.stamp ## .venv-neighbours: the real identity, image, placement, network and volume services

$(NEIGHBOURS)/.stamp: requirements-neighbours.txt $(VENV)/.stamp
	@echo "neighbours: installing Keystone, Glance, Placement, Neutron and Cinder into $(NEIGHBOURS)"
	$(BIN)/python -m kilonova.embedded.install $(NEIGHBOURS)
	touch $@

system: ## System packages for real guests (QEMU, libvirt, networking), where root or sudo is there
	@PYTHON="$(PYTHON)" tools/install-system-packages guests

system-servers: ## System packages of the servers that tests run (RabbitMQ, MariaDB, PostgreSQL)
	@PYTHON="$(PYTHON)" tools/install-system-packages guests servers

guest-image: | system ## build/guest.qcow2: the tiny guest
	@if ! guest/build.sh; then
		[ -z "$${KILONOVA_REQUIRE_SERVICES:-}" ] || exit 1
		echo "guest image: not built; the demo uses the simulated driver"
	fi

demo: system venv $(VENV)/.stamp-libvirt neighbours guest-image ## Bring a cloud up and boot a server in it
	@$(BIN)/kilonova demo

bench: venv neighbours ## Measure the control plane on simulated hosts (bench/results)
	@$(BIN)/python bench/run

lint: venv ## ruff, mypy --strict, the layers of the architecture
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test-fast: lint ## Under two minutes: lint, and the tests of units and of the API
	@$(BIN)/python tools/run-tests --together unit api

test: export KILONOVA_REQUIRE_SERVICES := 1
test: system-servers venv $(VENV)/.stamp-libvirt neighbours guest-image ## Everything that CI runs
	@$(MAKE) --no-print-directory lint
	$(BIN)/python tools/run-tests

clean: ## Remove what was built (not the virtual environments)
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
