# Three commands do everything on a fresh Debian-like machine: `make demo`, `make demo-spark` and `make test`.

PYTHON := .venv/bin/python
STAMP := .venv/.ready
# Java and PySpark are half a gigabyte that the demo does without.
SPARK_STAMP := .venv/.ready-spark

.PHONY: setup setup-spark demo demo-spark test bench lint clean

setup: $(STAMP)

setup-spark: $(SPARK_STAMP)

$(STAMP): pyproject.toml deploy/install.sh
	sh deploy/install.sh

$(SPARK_STAMP): pyproject.toml deploy/install.sh
	sh deploy/install.sh spark

demo: setup
	$(PYTHON) -m deploy.playground $(ARGS)

demo-spark: setup-spark
	$(PYTHON) -m deploy.playground.spark_demo $(ARGS)

# What reckons goes first, what waits for real servers behind it, each on both cores.
test: lint
ifdef ARGS
	$(PYTHON) -m pytest $(ARGS)
else
	$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not integration"
	$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m integration
endif

lint: setup-spark
	.venv/bin/ruff format --check --quiet .
	.venv/bin/ruff check --quiet .
	.venv/bin/mypy

bench: setup-spark
	$(PYTHON) -m tests.benchmarks $(ARGS)

clean:
	rm -rf .venv build
