# Everything a fresh machine needs is Python 3.11+ and make: `make demo` and `make test` do the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

CRASH_CYCLES ?= 200
BACKUPS ?= 20
CLUSTER_CYCLES ?= 50
FUZZ_SECONDS ?= 60
FUZZ_KINDS ?= codec,framing,batches,broker,guest,tcp
SEQUENCES ?= 2000
DECISIONS ?= 100000
TEST_PROCESSES ?= 3
CHECKED := src tests bench examples tools hatch_build.py
# Spark's JVMs in tests live shortly: they compile with the quick compiler alone.
BRIEF_JVM := env SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" SPARK_LAUNCHER_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PYTEST = $(BRIEF_JVM) $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup --no-loadscope-reorder
# Tests with these markers, and slow ones, have targets of their own.
WITH_TOOLS := kcat or java or go or peers or matrix or bench or browser or promtool
OTHERS := slow or alone or long or $(WITH_TOOLS)
# What computes, and a server as a process: the rest is the same Python, compiled or not.
COMPILED_TESTS := tests/test_compiled.py tests/wire tests/coordinator tests/storage tests/broker tests/simulator/test_simulator.py tests/server/test_process.py
# $(call needs,PROGRAM…): say which of these programs is missing, and stop.
needs = @for tool in $1; do command -v $$tool >/dev/null || { echo "make $@ needs $$tool, which is not on the path"; exit 1; }; done
# Tests start hundreds of processes; each one would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE
BENCHES := $(basename $(notdir $(wildcard bench/[a-z]*.py)))

.PHONY: $(BENCHES) help demo test test-slow test-alone test-long test-crash test-cluster test-hostile fuzz test-kcat test-console console-pictures test-promtool test-java test-go test-peers peers peers-clients peers-behaviour peers-conformance test-gateway peers-gateway peers-acls docs compiled test-compiled wheel test-bench check format bench clean

help: ## what the targets do
	@grep -E '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kohort needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[demo,spark]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.demo $(VENV)/.docs

# axe-core's script alone; the package's own code needs Playwright.
$(VENV)/.axe: $(VENV)/.dev
	$(PIP_INSTALL) --no-deps axe-playwright-python
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[demo,spark,docs]'
	@touch $@

demo: $(VENV)/.demo ## the main job, end to end, on embedded defaults
	$(BIN)/kohort demo

check: $(VENV)/.dev ## linter, formatter and types
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy

test: check ## check, then every quick test that PyPI packages alone can run (TEST_PROCESSES=3)
	KOHORT_PURE=1 $(PYTEST) -m "not ($(OTHERS))"

test-slow: $(VENV)/.dev ## what takes longer: demos, a pipeline that is interrupted, the steps of the Containerfile
	KOHORT_PURE=1 $(PYTEST) -m "slow and not long" tests/demo tests/gateway tests/server tests/spark

test-alone: $(VENV)/.dev ## some cycles of kill -9 under load, one test at a time
	KOHORT_PURE=1 $(BIN)/python -m pytest -m alone tests/crash

test-long: $(VENV)/.dev ## before a release: fresh seeds, the search for seeds that catch planted bugs, Spark applications and kills; half an hour
	KOHORT_PURE=1 $(PYTEST) -m long tests/demo tests/mutations tests/simulator tests/spark

test-crash: $(VENV)/.dev ## kill -9 under load, 200 cycles each with commits, transactions and a share group (CRASH_CYCLES=…), 20 of a gateway and its upstream, backups under load (BACKUPS=20); half an hour
	$(BIN)/python tests/crash --cycles $(CRASH_CYCLES)
	$(BIN)/python tests/crash --transactions --cycles $(CRASH_CYCLES)
	$(BIN)/python tests/crash --queues --cycles $(CRASH_CYCLES)
	$(BIN)/python tests/crash --backups $(BACKUPS)
	$(BIN)/python tests/crash --gateway --cycles 20

test-cluster: $(VENV)/.dev ## two nodes on a PostgreSQL: killed, stopped, cut off from the database, whose answers are lost (CLUSTER_CYCLES=50 of commits, and of transactions); 15 minutes
	$(BIN)/python tests/crash --nodes 2 --blips --cycles $(CLUSTER_CYCLES)
	$(BIN)/python tests/crash --nodes 2 --blips --transactions --cycles $(CLUSTER_CYCLES)

test-hostile: $(VENV)/.dev ## members beside hostile clients, each and in random mixes (CLIENTS=… MIXES=100 SEED= LENIENT=yes SHORT=yes); some 15 minutes
	$(BIN)/python tests/hostile $(if $(SHORT),--short) $(if $(CLIENTS),--clients $(CLIENTS)) $(if $(MIXES),--mixes $(MIXES)) $(if $(SEED),--seed $(SEED)) $(if $(LENIENT),--lenient)

fuzz: $(VENV)/.dev ## hostile input for a minute (FUZZ_SECONDS=…, FUZZ_INPUTS=…, FUZZ_SEED=…, FUZZ_KINDS=…)
	$(BIN)/python tests/fuzz --kinds $(FUZZ_KINDS) $(if $(FUZZ_INPUTS),--inputs $(FUZZ_INPUTS),--seconds $(FUZZ_SECONDS)) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

test-kcat: $(VENV)/.dev ## kcat against a server (needs kcat on the path)
	$(call needs,kcat)
	$(BIN)/python -m pytest -m kcat tests/clients

test-console: $(VENV)/.axe ## the console in a browser (needs chromium on the path)
	$(call needs,chromium)
	$(BIN)/python -m pytest -m browser tests/console

console-pictures: $(VENV)/.dev ## the pictures of the console's screens in docs/console, and their page (needs chromium on the path)
	$(call needs,chromium)
	$(BIN)/python tests/console/screenshots.py

test-promtool: $(VENV)/.dev ## promtool's checks of /metrics and of the alert rules, and a Prometheus that scrapes 20,000 series (needs both on the path)
	$(call needs,promtool prometheus)
	$(BIN)/python -m pytest -m promtool tests/server

test-java: $(VENV)/.dev ## Java's clients, the sink beside Spark's (needs Maven and Java 17)
	$(call needs,mvn java)
	$(PYTEST) -m "java and not peers and not matrix" tests/java tests/spark

test-go: $(VENV)/.dev ## franz-go against a server (needs Go)
	$(call needs,go)
	$(BIN)/python -m pytest -m go tests/go

peers: peers-clients test-peers peers-behaviour peers-conformance peers-gateway peers-acls ## all of test-peers and peers-…, one after the other: hours

peers-clients: $(VENV)/.dev ## clients × features, Kafka's programs; writes docs/clients.md (each needs Go, Node, kcat, or Maven and Java 17)
	$(BIN)/python -m pytest -m matrix --rewrite tests/matrix tests/java tests/spark/source/test_source_beside_spark.py

test-peers: $(VENV)/.dev ## the same tests, against Apache Kafka and against kohort (needs Maven and Java 17)
	$(call needs,mvn java)
	$(BIN)/python tests/peers/shared_kafka.py $(PYTEST) -m peers tests/peers tests/client_library tests/clients tests/console tests/java

peers-behaviour: $(VENV)/.dev ## every scenario and random sequences (SEQUENCES=2000 TRANSACTIONS= SEED= QUICK=yes RECORD=yes), Apache Kafka beside kohort
	$(BIN)/python tests/behaviour --sequences $(SEQUENCES) $(if $(TRANSACTIONS),--transactions $(TRANSACTIONS)) $(if $(STRICT),--strict) $(if $(SEED),--seed $(SEED)) $(if $(QUICK),--quick) $(if $(RECORD),--record)

# ANSWERS: scenarios whose answers of Apache Kafka 4.3 are recorded again, `all` for every one; then no table is recorded.
peers-conformance: $(VENV)/.dev ## the tables of `kohort conformance`: kohort, Apache Kafka 3.9 to 4.3, kfake, librdkafka's mock (SERVERS="…"; ANSWERS="NAME…": Kafka's answers to scenarios)
	$(if $(ANSWERS),$(BIN)/python tests/behaviour/record_answers.py $(filter-out all,$(ANSWERS)),$(BIN)/python tests/behaviour/record_tables.py $(SERVERS))

# What is left out starts servers of its own, or needs the racks or the number of brokers that it asks for.
test-gateway: $(VENV)/.dev ## tests of clients through a gateway before a kohort, and scenarios through it beside a kohort
	GATEWAY_UPSTREAM=kohort $(PYTEST) -m "client and not ($(OTHERS))" tests/clients/test_groups.py tests/clients/test_records.py tests/clients/test_admin.py tests/clients/test_consumer_groups.py -k "not rack and not test_confluent_topics"
	$(BIN)/python tests/behaviour --gateway --quick --sequences 0

peers-gateway: $(VENV)/.dev ## the tests of clients through a gateway before three brokers of Apache Kafka, what these do to it, kfake, clients × features (needs Maven, Java 17 and Go)
	$(call needs,mvn java go)
	$(BIN)/python tests/peers/kafka_cluster.py $(PYTEST) -m "client and not ($(OTHERS))" tests/clients --ignore tests/clients/test_transactions.py --ignore tests/clients/test_restart.py -k "not rack and not test_confluent_topics"
	$(PYTEST) -m peers tests/gateway
	GATEWAY_UPSTREAM=kohort $(BIN)/python -m pytest -m matrix tests/matrix

peers-acls: $(VENV)/.dev ## random ACLs and requests, decided by Kafka's StandardAuthorizer and by kohort (DECISIONS=100000 SEED=; needs Maven and Java 17)
	$(call needs,mvn java)
	$(BIN)/python tests/peers/acl_decisions.py --decisions $(DECISIONS) $(if $(SEED),--seed $(SEED))

docs: $(VENV)/.docs ## the documentation site, in site/ (open site/index.html; its search needs a web server)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'site/index.html is ready; with search: $(BIN)/python -m http.server --directory site'

compiled: $(VENV)/.dev ## compile the hot modules with mypyc, for this checkout (needs a C compiler)
	$(call needs,$${CC:-cc})
	$(BIN)/python tools/compiled.py

test-compiled: compiled ## properties, oracles, scenarios and a server's process on the compiled modules (needs a C compiler)
	$(BIN)/python -c 'from kohort import compiled; compiled.in_use or exit(f"not compiled: {compiled.why_pure}")'
	$(PYTEST) -m "not ($(OTHERS))" $(COMPILED_TESTS)

wheel: $(VENV)/.dev ## a wheel in dist/: pure Python; compiled for this machine with KOHORT_COMPILED=1 (needs a C compiler)
	$(if $(KOHORT_COMPILED),$(call needs,$${CC:-cc}))
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

test-bench: $(VENV)/.dev ## the instruments of `make bench`, and without QUICK=yes each comparison, small (needs gcc; Maven and Java 17, Go for the peers)
	$(call needs,gcc)
	$(BIN)/python -m pytest -m bench $(if $(QUICK),-k "not comparison and not security") tests/instruments

format: $(VENV)/.dev ## let the formatter and the linter mend what they can
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --fix $(CHECKED)

bench: $(VENV)/.dev ## measure beside Apache Kafka, an hour and a half (ARGS=--quick: a quarter); or `make bench SUBJECT…`
	@$(if $(filter $(BENCHES),$(MAKECMDGOALS)),:,if command -v $${CC:-cc} >/dev/null; then $(MAKE) --no-print-directory compiled; fi)
	$(BIN)/python -m bench $(filter $(BENCHES),$(MAKECMDGOALS)) $(ARGS)

# The names behind `bench` are goals of make too: nothing is left to do for them.
$(BENCHES): bench
	@:

clean: ## remove the virtual environment and what tests and demos left
	rm -rf $(VENV) .jars .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site src/kohort/_compiled
