# Three commands do everything on a fresh Debian-like machine: `make demo`, `make demo-spark` and `make test`.
# `make test PYTHON=/usr/bin/python3.13` makes .venv of that interpreter; without it, deploy/install.sh chooses.

# Without bytecode each of the hundreds of processes that tests and demo start compiles all it imports.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
STAMP := .venv/.ready
# Java and PySpark are half a gigabyte that the demo does without.
SPARK_STAMP := .venv/.ready-spark

# mkdocs and its theme, which nothing else needs.
DOCS_STAMP := .venv/.ready-docs

.PHONY: setup setup-spark demo demo-spark test sim bench lint style docs screenshots deb release-check clean

setup: $(STAMP)

setup-spark: $(SPARK_STAMP)

ifdef PYTHON
export PYTHON
# Asked for by name, the interpreter is compared with the one that .venv has.
$(STAMP) $(SPARK_STAMP): | same-python
.PHONY: same-python
same-python:
	sh deploy/install.sh same-python
endif

$(STAMP): pyproject.toml deploy/install.sh
	sh deploy/install.sh

$(SPARK_STAMP): pyproject.toml deploy/install.sh
	sh deploy/install.sh spark

$(DOCS_STAMP): $(STAMP) pyproject.toml
	$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

demo: setup
	$(PY) -m binlog_playground $(ARGS)

demo-spark: setup-spark
	$(PY) -m tests.rig.spark_demo $(ARGS)

# Types are checked beside the tests, which wait for servers a third of their time. Ctrl-C ends what stands in
# front and the tests, which listen for it; SIGTERM comes to the shell alone. It ends the rest, and waits for it.
ifdef ARGS
test: lint
	$(PY) -m pytest $(ARGS)
else
test: style
	@trap 'kill $$types' INT; trap 'kill -INT $$pytest; kill $$types' TERM; \
	.venv/bin/mypy & types=$$!; \
	$(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart=0 & pytest=$$!; \
	until wait $$pytest; tests=$$?; ! kill -0 $$pytest 2>/dev/null; do :; done; \
	wait $$types || { echo "types are not right: mypy says above why" >&2; exit 1; }; exit $$tests
endif

lint: style
	.venv/bin/mypy

style: setup-spark
	.venv/bin/ruff format --check --quiet .
	.venv/bin/ruff check --quiet .

# The cluster in a deterministic world: `make sim ARGS="--seeds 1000 --jobs 2"`, `ARGS="--seed 7 --trace"`.
sim: setup
	$(PY) -m tests.sim $(ARGS)

bench: setup-spark
	$(PY) -m tests.benchmarks $(ARGS)

# Strict: a link that leads nowhere, or a page that the navigation lacks, fails it. Not --quiet, which drops the
# warnings before they are counted.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "open build/site/index.html; its search needs a server: $(PY) -m http.server -d build/site"

# What docs show of the pages, by Chromium (apt-get install chromium).
screenshots: setup
	$(PY) -m tools.screenshots

# For this Debian's Python, or for PYTHON: build/deb/tidb-binlog_VERSION_ARCHITECTURE.deb
deb:
	sh deploy/debian/build.sh build/deb

# What is published: sdist, wheel and SBOM, in build/release.
release-check: setup
	$(PY) -m tools.release_check

clean:
	rm -rf .venv build
