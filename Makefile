# Every target sets itself up in .venv; it needs Python 3.11 or newer with pip, make, and nothing else.
#
#   make test ARGS="-k ack"          hands ARGS to the program behind demo, storm, test, proof or bench
#   make setup PYTHON=python3.12     builds .venv with another interpreter

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# pip speaks only when it fails; where it finds packages is left to the machine's own configuration.
PIP_FLAGS := --disable-pip-version-check --quiet --quiet
PIP := $(BIN)/python -m pip $(PIP_FLAGS)
# uv only writes the lock; nothing else here needs it.
UV_VERSION := 0.13.7
LOCK_VENV := .venv-lock

installed = { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	{ apt-get update -qq && RUNLEVEL=1 timeout 300 apt-get install -y -qq $(1); } >/dev/null 2>&1; } || true

.DEFAULT_GOAL := help
.PHONY: help setup demo storm tools test check proof bench docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## install the locked dependencies and the package into .venv

demo: $(READY) ## run jobs on a thousand hosts over a bad network, and judge what came of it
	$(BIN)/onward demo $(ARGS)

storm: $(READY) ## let a storm of late, doubled and reordered events loose on Onward
	$(BIN)/onward storm $(ARGS)

# What a test needs and no wheel brings is installed where that can be done, and not started; elsewhere,
# the tests that need it are named as not run.
tools:
	@command -v curl >/dev/null || $(call installed,curl)
	@test -e /usr/lib/rabbitmq/bin/rabbitmq-server || $(call installed,rabbitmq-server)
	@test -x /usr/sbin/sshd || $(call installed,openssh-server)
	@test -x /usr/sbin/mosquitto || $(call installed,mosquitto mosquitto-clients)
	@command -v sudo >/dev/null || $(call installed,sudo)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		command -v google-chrome >/dev/null || $(call installed,chromium)

test: $(READY) tools ## run the whole suite
	$(BIN)/pytest -q --numprocesses=2 --dist=loadfile $(ARGS)

check: $(READY) ## lint, formatting, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

proof: $(READY) tools ## run the suite at its full figures and print one table of them
	$(BIN)/pytest -q --proof $(ARGS)

bench: $(READY) ## measure Onward, and its peers beside it
	$(BIN)/onward bench $(ARGS)

docs: $(READY) ## write the generated pages anew
	$(BIN)/onward docs

lock: ## write requirements.lock anew (UPGRADE=1 takes the newest versions)
	@test -x $(LOCK_VENV)/bin/uv || $(PYTHON) -m venv $(LOCK_VENV)
	@$(LOCK_VENV)/bin/python -m pip $(PIP_FLAGS) install uv==$(UV_VERSION)
	$(LOCK_VENV)/bin/uv pip compile pyproject.toml --output-file requirements.lock --quiet \
		--universal --python-version 3.11 --generate-hashes \
		--extra bench --extra celery --group build --group test --group lint \
		--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) $(LOCK_VENV) build dist .artefacts .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is newer than both files for as long as .venv holds what they ask for.
# Some distributions ship Python without ensurepip; there, the pip outside puts another into .venv.
# The lock is complete, so nothing is resolved a second time (older pips stumble over extras there);
# `pip check` says so if it ever is not.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Onward needs Python 3.11 or newer, and \
	$(PYTHON) is %d.%d: name another, as in make PYTHON=python3.11." % sys.version_info[:2])'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		echo "Making $(VENV), once."; \
		$(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { \
			$(PYTHON) -m venv --clear --without-pip $(VENV) && \
			$(PYTHON) -m pip $(PIP_FLAGS) --python $(BIN)/python install pip; }; }
	@echo "Installing requirements.lock and onward into $(VENV)."
	@$(PIP) install --no-deps --require-hashes --requirement requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@problems=$$($(BIN)/python -m pip check) || { echo "$$problems" >&2; exit 1; }
	@touch $@
