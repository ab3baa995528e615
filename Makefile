# The commands: build, run, test, demo, perf, ledger, soak, mutants, lint, docs, settings, invariants, wheel,
# sanitize, fuzz, clean, spark-classes.
# Each does its own set-up in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SOAK_SECONDS ?= 600
EXTRAS ?= test,lint
BUILD_TOOLS := pip "setuptools>=77" "cython>=3.3,<4"
TEST_WORKERS ?= 5
SPARK_WORKERS ?= 2
ALL ?= $(CI)
WHEEL_PYTHONS ?= $(BIN)/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# -- a machine that forbids .pyc files compiles all of the project whenever a process starts
unexport PYTHONDONTWRITEBYTECODE
SOURCES := $(shell find mqcore -name '*.pyx' -o -name '*.pxd' -o -name '*.h' 2>/dev/null) \
           mqcore/participants.py mqcore/figures.py
JAVA := $(shell find mqcore/spark/jvm/src -name '*.java')
JAR  := mqcore/spark/jvm/mqcore-spark.jar

.PHONY: build tools run test demo perf ledger lint docs settings invariants clean soak mutants wheel debug sanitize fuzz \
        fuzz-build spark-classes

# -- what is installed from elsewhere is fetched beside the compiling
build: $(VENV)/created
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/installed $(VENV)/built

# -- ... and what the tests and checks need besides
tools: $(VENV)/created
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/tools $(VENV)/probes
	@$(MAKE) --no-print-directory $(JAR)

$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is Python %d.%d; mqcore needs 3.11 or newer: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	$(PYTHON) -m venv --without-pip $(VENV)
	@$(PYTHON) -m pip --python $(BIN)/python install --quiet --no-compile $(BUILD_TOOLS) 2>/dev/null || \
	    { $(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet $(BUILD_TOOLS); }
	@touch $@

# -- the project, editable; nothing is compiled here. Spark finds data sources among the modules of
#    folders on the path, so the folder of those is there
$(VENV)/installed: $(VENV)/created pyproject.toml setup.py
	MQCORE_BUILD_ONLY=none $(BIN)/pip install --quiet --no-compile --no-build-isolation --editable .
	@printf '%s\n' $(CURDIR) $(CURDIR)/mqcore/spark/discovered > $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mqcore_sources.pth
	@touch $@

$(VENV)/tools: $(VENV)/installed
	MQCORE_BUILD_ONLY=none $(BIN)/pip install --quiet --no-compile --no-build-isolation --editable '.[$(EXTRAS)]'
	@touch $@

# -- the source of Spark that runs in Spark's own process: where a JDK and PySpark are; else it says
#    what is missing, and all other things are built
$(JAR): $(JAVA) mqcore/spark/jvm/__main__.py | $(VENV)/tools
	@$(BIN)/python -m mqcore.spark.jvm --if-possible

# -- compiles what changed, and what is compiled with it
$(VENV)/built: $(VENV)/created setup.py $(SOURCES)
	$(if $(wildcard $(VENV)/probes),MQCORE_PROBES=1) $(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

# -- ... with what only tests use
$(VENV)/probes: $(VENV)/created setup.py $(SOURCES)
	MQCORE_PROBES=1 $(BIN)/python setup.py --quiet build_ext --inplace
	@touch $(VENV)/built $@

run: build
	$(BIN)/mqcore up -c config/broker.toml

# -- several tests at a time, on two processors as well: half of what they take is waiting, for other
#    clients above all. What fails is run alone, twice when it has to be: a machine that is too slow
#    for so many at a time fails none, and what is said of these runs names each such test
#    Those that take long (marked slow: a few seconds of a processor or more), and those of
#    tests/rare.py, are left to CI and to `make test ALL=1`. Those on a Spark session run after the others, in two processes with a session
#    each: one leaves much of two processors
QUICK := $(if $(ALL),, and not slow and not rare)
# -- failures of this run only: not those of other runs, and a developer's stay
PYTEST := $(BIN)/python -m pytest -o cache_dir=build/make-test $(PYTEST_ARGS)
ALONE = echo "make test: what failed is run alone"; \
	$(PYTEST) -v --last-failed --last-failed-no-failures none $(1)
AGAIN = { [ $$? -eq 1 ] && { $(ALONE) || { [ $$? -eq 1 ] && { $(ALONE); }; }; }; }
test: tools
	@$(PYTEST) --cache-clear -n $(TEST_WORKERS) --dist worksteal -m "not spark$(QUICK)" || $(call AGAIN,)
	@$(PYTEST) -n $(SPARK_WORKERS) --dist worksteal -m "spark$(QUICK)" tests/spark || \
	    $(call AGAIN,-m spark tests/spark)

# -- for who runs tests on Spark again and again: see tests/spark/jvm.py
spark-classes: tools
	$(BIN)/python -m tests.spark.programs.classes

demo: build
	$(BIN)/python -m mqcore.admin.demo

perf: tools
	$(BIN)/python -m pytest perf --benchmark-enable --benchmark-only $(PYTEST_ARGS)
	$(BIN)/python -m perf.compare $$($(BIN)/python -m perf.states)

# -- what each path costs in what can be counted without a clock, held against perf/ledger/table.tsv
#    (instructions where there is valgrind);
#    `make ledger LEDGER=--write` after a change that is to cost more, or less: the commit says why
ledger: tools
	$(BIN)/python -m perf.ledger $(LEDGER)

# -- each for SOAK_SECONDS: random and mutated frames, under which no process may die and no memory
#    may grow; then every attack of tests/attacks in random order beside an honest client; then
#    peers that begin handshakes beside one, 10,000 of them at once; then peers that flood a name
#    server; then kills of all processes under load, which may lose nothing acknowledged; then all
#    that breaks between a master and its slaves, which may not either
soak: tools
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest tests/hostile/test_mutated.py $(PYTEST_ARGS)
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest tests/wire/test_fast_header.py $(PYTEST_ARGS)
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -s tests/attacks/test_soak.py $(PYTEST_ARGS)
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest tests/tls/test_floods.py tests/tls/test_half_open.py $(PYTEST_ARGS)
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest tests/attacks/test_name_server_floods.py $(PYTEST_ARGS)
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -s tests/workers/test_kills.py -k as_long_as_asked $(PYTEST_ARGS)
	SOAK=1 $(BIN)/python -m pytest tests/client/test_lives.py $(PYTEST_ARGS)
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -s tests/replication/faults $(PYTEST_ARGS)

# -- breaks each lettered rule in a copy of the project, and runs the tests that hold it: half an hour for
#    all, minutes for `make mutants MUTANTS="transactions H2"`
mutants: tools
	$(BIN)/python -m tests.mutants $(MUTANTS)

# -- dist/: the sources, and made from them alone a wheel for each of WHEEL_PYTHONS, for every machine
#    whose glibc is not older than the wheel's name says
wheel: $(VENV)/tools $(JAR)
	rm -rf dist build/wheel
	$(BIN)/python -m build --quiet --sdist --outdir dist
	for python in $(WHEEL_PYTHONS); do \
	    rm -rf build/wheel/venv && $$python -m venv build/wheel/venv && \
	    build/wheel/venv/bin/pip wheel --quiet --no-deps --wheel-dir build/wheel dist/*.tar.gz || exit; \
	done
	PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --wheel-dir dist build/wheel/*.whl
	ls -l dist

# -- native tests over a build of its own, in build/debug: sanitizers and invariants on; by clang if it
#    is there, for fuzzers as well. And threads at the ends of rings under another sanitizer
sanitize: debug
debug: $(VENV)/tools
	$(BIN)/python -m tests.debug $(PYTEST_ARGS)
	$(BIN)/python -m tests.debug.threads

# -- decoders, and readers of stores, under any bytes, for FUZZ_SECONDS in all; needs clang
fuzz: tools
	nice $(BIN)/python -m tests.fuzz $(FUZZ_TARGETS)

fuzz-build: tools
	$(BIN)/python -m tests.fuzz.building

lint: tools
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.house

# -- build/docs: the client's API reference, of its docstrings
docs: tools
	$(BIN)/python -m docs.reference

# -- defaults of settings, from their model into config/broker.toml and docs/configuration.md; the
#    table of requests in HACKING.md; those of docs/metrics.md and docs/events.md; alert rules and the
#    board
settings: build
	$(BIN)/python -m docs.settings
	$(BIN)/python -m docs.requests
	$(BIN)/python -m docs.admin
	$(BIN)/python -m docs.metrics
	$(BIN)/python -m docs.alerts
	$(BIN)/python -m docs.events

# -- docs/invariants.md, of the rules that the heads of files state
invariants: build
	$(BIN)/python -m docs.invariants

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .benchmarks
	find mqcore workers config tests perf -name '*.so' -delete -o -name '__pycache__' -type d -prune -exec rm -rf {} +
