# Two commands do everything on a fresh Debian-like machine: `make demo` and `make test`.

PYTHON := .venv/bin/python
STAMP := .venv/.ready

.PHONY: setup demo test bench lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml deploy/install.sh
	sh deploy/install.sh

demo: setup
	$(PYTHON) -m deploy.playground $(ARGS)

test: lint
	$(PYTHON) -m pytest $(ARGS)

lint: setup
	.venv/bin/ruff format --check --quiet .
	.venv/bin/ruff check --quiet .
	.venv/bin/mypy

bench: setup
	$(PYTHON) -m tests.benchmarks $(ARGS)

clean:
	rm -rf .venv build
