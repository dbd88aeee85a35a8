# Two commands: `make demo` and `make test`. Only Python 3.11 or newer must be installed before.
PYTHON ?= python3
BIN := .venv/bin
DEMO := demo
# Two test processes more than there are cores: tests/rings.py gives them tests that wait for servers.
WORKERS ?= $(shell echo $$(($$(nproc) + 2)))
SIDE_BY_SIDE := -n $(WORKERS) --dist loadscope
# Many tests start envpack as a program, which then need not be compiled to byte code each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check test test-all slice lint style types quick-tests docs recipes dist clean

help:
	@echo "make demo   build three environments and stubs, boot the real server, classify real images"
	@echo "make check  the inner loop: style, types, unit tests, the stub's wire; two minutes"
	@echo "make test   the gate: style, types, documentation, unit tests, and every kind of real thing once; a quarter of an hour"
	@echo "make test-all  everything: all Pythons, releases, sanitizers, stores, containers; an hour"
	@echo "make slice SLICE=2  a sixth of what test-all adds to test"
	@echo "make docs   the documentation as a site, in build/site; every link, command and generated part is checked"
	@echo "make recipes  build, test and verify all recipes on the real server; gigabytes of packages"
	@echo "make mutants  put small faults into the code and show which of them no test notices; two hours"
	@echo "make golden  write the golden outputs of tests/golden anew; git shows what differs"
	@echo "make house  print what the code weighs: lines, rooms, imports, options"
	@echo "make dist   build the sdist and the wheels into dist/"
	@echo "make clean  remove what the others have made here"

.venv/for-demo: pyproject.toml ci/install.py
	$(PYTHON) ci/install.py .venv
	@touch $@

.venv/for-test: pyproject.toml ci/install.py
	$(PYTHON) ci/install.py .venv test docs
	@touch $@

demo:
	$(PYTHON) ci/demo.py --check "$(DEMO)"
	$(MAKE) --no-print-directory .venv/for-demo
	$(BIN)/python ci/demo.py "$(DEMO)"

lint: style types

style: .venv/for-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@$(BIN)/clang-format --dry-run --Werror $(shell find stub_src tests/native tests/fuzz -name '*.cc' -o -name '*.h')

types: .venv/for-test
	$(BIN)/mypy

quick-tests: .venv/for-test
	$(BIN)/pytest --quiet -n $(shell nproc) --dist loadscope --part quick tests/unit tests/native

check: .venv/for-test
	$(MAKE) --no-print-directory --jobs=3 --output-sync=target style types quick-tests

docs: .venv/for-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

test: prepared-gate
	$(BIN)/pytest $(SIDE_BY_SIDE) --part gate

test-all: prepared-all
	$(BIN)/pytest $(SIDE_BY_SIDE)

slice: .venv/for-test
	@test -n "$(SLICE)" || { echo "name one of the six: make slice SLICE=1"; exit 2; }
	$(BIN)/python -m tests.compiled $(SLICE)
	$(BIN)/pytest $(SIDE_BY_SIDE) --part $(SLICE)

# What needs no test process, side by side.
prepared-%: .venv/for-test
	$(MAKE) --no-print-directory --jobs=4 --output-sync=target style types docs collected compiled-$*

# Compiles the tests to byte code once, which otherwise each test process does, at the same time.
collected: .venv/for-test
	@mkdir -p build; ENVPACK_MINIMUM_PYTHONS=0 $(BIN)/pytest --collect-only -qq > build/collected.txt || { cat build/collected.txt; exit 1; }

compiled-%: .venv/for-test
	$(BIN)/python -m tests.compiled $*

# What the house weighs, by the measures of docs/explanation/architecture.md.
.PHONY: house
house: .venv/for-test
	$(BIN)/python ci/house.py

.PHONY: mutants
mutants: .venv/for-test
	@failed=0; for driver in "python.py --targets core" "python.py --targets outer" stub.py; do \
		echo $$driver; $(BIN)/python ci/mutants/$$driver || failed=1; done; exit $$failed

.PHONY: golden
golden: .venv/for-test
	$(BIN)/python -m tests.golden

# One ring of `make test`: test-container, test-portability (aarch64 and older Debians), test-server/stub …
test-%: .venv/for-test
	$(BIN)/pytest $(SIDE_BY_SIDE) tests/$*

recipes: .venv/for-test
	$(BIN)/python ci/recipes.py

dist: .venv/for-test
	$(BIN)/python ci/make_dist.py dist

clean:
	rm -rf .venv build dist "$(DEMO)"
	@$(PYTHON) ci/cache_note.py
