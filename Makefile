# Two commands on a fresh Debian 12 machine: `make experiment TOPO=wan1g` and `make test`.

.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
# What a run needs is root's; under sudo, what it makes is given to the caller.
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),sudo)
# ROOTLESS=1 asks for less: a run in a user namespace, which says what it does without.
ROOTLESS ?=
MAKES_RUNS := $(if $(filter-out 0,$(ROOTLESS)),,$(AS_ROOT))
AS_USER := $(if $(filter-out 0,$(ROOTLESS)),--rootless)
CACHES := .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

TOPO ?= wan1g
FUZZ_S ?= 60
# Only what is given is passed on; the defaults are those of experiments/conf/config.yaml.
quoted = '$(subst ','\'',$(1))'
given = $(if $($(1)),$(2)=$(call quoted,$($(1))))
OVERRIDES = $(call given,TOPO,topo) $(call given,STRATEGY,strategy) $(call given,COMPRESSOR,compressor) \
	$(call given,TRANSFORM,transform) $(call given,WORKLOAD,workload) $(call given,WORKERS,workers) $(call given,DILATION,dilation) \
	$(call given,START_FROM,start_from) $(call given,CHECKPOINT,checkpoint) $(call given,SEED,seed) $(SET) \
	$(call given,TRUST,--trust) $(FIXES)
# FIX=1 takes the first of what would do where a run is refused.
FIXES = $(if $(filter-out 0,$(FIX)),--fix)
RUNS ?=

# A variable that the target does not read is refused, since the run would be another one than was meant. The environment
# and make's own variables are left alone.
READS_experiment := TOPO STRATEGY COMPRESSOR TRANSFORM WORKLOAD WORKERS DILATION START_FROM CHECKPOINT SEED SET ARGS TRUST FIX ROOTLESS
READS_sweep := SWEEP EXECUTOR OPTIONS SET TRUST FIX
READS_report := RUNS
READS_dashboard := LIVE
READS_check := ROOTLESS
READS_test := PYTEST_ADDOPTS
READS_test-all := PYTEST_ADDOPTS
READS_test-slow := PYTEST_ADDOPTS
READS_docker-image := BASE DOCKER_HOST
READS_try-image := DOCKER_HOST
READS_fuzz := FUZZ_S
READS_wheels-check := PYTHON
READS_bench := BENCH
READS_reproduce := SYSTEM AGAIN ALL_SEEDS SEEDS FULL REPRODUCE
OF_MAKE := SHELL .SHELLFLAGS MAKE MAKEFLAGS MFLAGS GNUMAKEFLAGS MAKEFILES MAKELEVEL MAKEOVERRIDES VPATH
goals := $(or $(MAKECMDGOALS),$(.DEFAULT_GOAL))
reads := $(foreach goal,$(goals),$(READS_$(goal)))
given_here := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
define newline


endef
ifneq ($(filter-out $(OF_MAKE) $(reads),$(given_here)),)
stray := $(filter-out $(OF_MAKE) $(reads),$(given_here))
said := $(shell python3 scripts/make_variables.py '$(goals)' '$(reads)' $(call quoted,$(value SET)) \
	$(foreach name,$(stray),$(call quoted,$(name)=$(value $(name)))) 2>/dev/null)
$(error $(or $(subst \n,$(newline),$(said)),make $(goals): $(stray): unknown; known: $(or $(reads),none)))
endif
# `$HOME` would become what make's own variable H holds, and `OME`.
asked := $(filter-out $(OF_MAKE),$(sort $(given_here) $(reads)))
expanded := $(strip $(foreach name,$(asked),$(if $(findstring $$,$(subst $$$$,,$(value $(name)))),$(name))))
ifneq ($(expanded),)
$(error make $(goals): $(expanded): make takes what follows a $$ for a variable of its own; write $$$$ for each $$)
endif

.PHONY: help
help: ## Print the targets
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "make %-15s %s\n", $$1, $$2 }'

.PHONY: setup
setup: ## Install what is missing: Debian packages, .venv with pinned packages; returns at once when nothing is
	@bash scripts/setup.sh

.PHONY: setup-browser
setup-browser: ## The same and Chromium, with which the tests look at pages
	@bash scripts/setup.sh browser

.PHONY: experiment
experiment: setup ## One run: TOPO= [STRATEGY= COMPRESSOR= TRANSFORM= WORKLOAD= WORKERS= DILATION= START_FROM= CHECKPOINT=last SEED= SET="a.b=c d.e=f" ARGS="--for a script" TRUST=ship.py FIX=1 ROOTLESS=1]
	@$(MAKES_RUNS) $(BIN)/longhaul run $(AS_USER) $(OVERRIDES) $(if $(ARGS),-- $(ARGS))

.PHONY: sweep
sweep: setup ## All runs of a grid that are not there yet, and their table: SWEEP=smoke [EXECUTOR=local|ray|slurm OPTIONS="address=..." SET="steps=20,40" FIX=1]
	@$(AS_ROOT) $(BIN)/longhaul sweep $(if $(SWEEP),$(call quoted,$(SWEEP))) $(call given,EXECUTOR,--executor) $(OPTIONS:%=--executor-option=%) $(SET) $(call given,TRUST,--trust) $(FIXES)

.PHONY: report
report: setup ## One self-contained HTML file, report.html, over RUNS="id id"; all runs where none are given
	@$(BIN)/longhaul report $(RUNS)

.PHONY: dashboard
dashboard: setup ## Live pages over all runs, and a Prometheus for Grafana, until Ctrl-C; LIVE=1: the run in progress there too
	@exec $(BIN)/longhaul dashboard $(if $(filter-out 0,$(LIVE)),--live)

.PHONY: dashboard-check
dashboard-check: setup ## Ask every query of every dashboard about all runs; each without an answer is a fault, or why it has none
	@$(BIN)/longhaul dashboard --check

.PHONY: check
check: setup ## What this machine has and lacks, all at once, and what each lack means
	@$(MAKES_RUNS) $(BIN)/longhaul check $(AS_USER)

.PHONY: test
test: setup ## The first tier of tests, in minutes: every plug-in once, real ranks, emulated runs; some need root
	@scripts/test.sh

.PHONY: test-all
test-all: setup ## The first tier, its time, and then all other tests but the slow ones
	@scripts/test.sh all

.PHONY: test-netem
test-netem: setup ## The netem shaper on a kernel that has it: Debian's user-mode Linux, booted for the tests
	@scripts/test-netem.sh

.PHONY: test-debian13
test-debian13: setup ## Debian 13 beside this system, by debootstrap, kept in /var/cache: set-up, the README's run, tests of core and compressors
	@scripts/debian13.sh

.PHONY: docker-image
docker-image: ## The image of nodes with runtime=docker, by a dockerd that you have started: [BASE=debian:12-slim]
	@$(AS_ROOT) env $(if $(DOCKER_HOST),DOCKER_HOST=$(DOCKER_HOST)) $(if $(BASE),BASE=$(BASE)) bash scripts/docker-image.sh

.PHONY: try-image
try-image: setup ## An image of this clone with all that it needs, by a dockerd that you have started, and the command that makes a run in it
	@$(AS_ROOT) env $(if $(DOCKER_HOST),DOCKER_HOST=$(DOCKER_HOST)) bash scripts/try-image.sh

.PHONY: test-slow
test-slow: setup ## The third tier, more than two hours, alone on the machine: the README's commands one by one in a clone set up for them, every compressor over an emulated WAN
	@trap 'scripts/own.sh runs report.html build' EXIT; \
	$(AS_ROOT) $(BIN)/python -B -m pytest -p no:cacheprovider --tier slow tests

.PHONY: fuzz
fuzz: setup ## Throw damaged bytes at every decoder and reader for FUZZ_S=60 seconds; what breaks one is kept in tests/corpus/
	@$(BIN)/python -m tests.fuzzing --seconds $(FUZZ_S)

.PHONY: bench
bench: setup ## The project's benchmarks: tables, docs/benchmarks.md, JSON beside; BENCH="--quick" or "--only set_up"
	@trap 'scripts/own.sh experiments/benchmarks/results README.md docs' EXIT; \
	$(AS_ROOT) $(BIN)/python -B -m experiments.benchmarks $(BENCH)

.PHONY: reproduce
reproduce: setup ## One repeat of papers' systems against their baselines: all, or SYSTEM=dear in ten minutes at most; [AGAIN=1 ALL_SEEDS=1 FULL=1], the latter two without limit
	@trap 'scripts/own.sh experiments/reproductions docs README.md runs' EXIT; \
	$(AS_ROOT) $(BIN)/python -B -m experiments.reproductions $(SYSTEM) $(if $(filter-out 0,$(AGAIN)),--again) \
		$(if $(filter-out 0,$(FULL)),--full) $(if $(filter-out 0,$(ALL_SEEDS) $(SEEDS)),--seeds) $(REPRODUCE)

.PHONY: site
site: setup ## The documentation as a site in build/site, every link checked; fetches nothing
	@trap 'scripts/own.sh build' EXIT; $(BIN)/python scripts/make_site.py

.PHONY: wheel
wheel: setup ## The wheel `longhaul` in build/: runs read in Python on a machine without a clone
	@trap 'scripts/own.sh build' EXIT; $(BIN)/python scripts/make_wheel.py longhaul

.PHONY: wheel-compressors
wheel-compressors: setup ## The wheel `longhaul-compressors` in build/: compressors and ddp_hook for a training script anywhere
	@trap 'scripts/own.sh build' EXIT; $(BIN)/python scripts/make_wheel.py longhaul-compressors

.PHONY: wheels-check
wheels-check: setup ## Both wheels by pip in empty environments, and their tests there: PYTHON="python3.10 python3.13", or the system's; pip may fetch GBs
	@trap 'scripts/own.sh build' EXIT; $(BIN)/python scripts/wheels_check.py $(PYTHON)

.PHONY: gpu-kit
gpu-kit: setup ## What a bare GPU machine lacks, in build/gpu-kit.tar.xz; scripts/gpu-check.sh takes it there
	@trap 'scripts/own.sh build' EXIT; $(BIN)/python scripts/gpu_kit.py

.PHONY: lint
lint: setup ## Style, types, import contracts, and what must not be in the tree
	@trap 'scripts/own.sh $(CACHES)' EXIT; set -ex; \
	$(BIN)/ruff check; \
	$(BIN)/ruff format --check; \
	$(BIN)/mypy; \
	$(BIN)/lint-imports; \
	$(BIN)/python scripts/check_files.py; \
	$(BIN)/python scripts/check_docstrings.py; \
	$(BIN)/python scripts/check_words.py; \
	$(BIN)/python scripts/metrics_doc.py --check; \
	$(BIN)/python scripts/compressors_doc.py --check; \
	$(BIN)/python scripts/events_doc.py --check; \
	$(BIN)/python scripts/parameters_doc.py --check; \
	$(BIN)/python -m dashboards.generate --check; \
	for script in scripts/*.sh tests/netem/*.sh .ci/run; do bash -n $$script; done

.PHONY: format
format: setup ## Rewrite the code in the one format there is
	@trap 'scripts/own.sh $(CACHES)' EXIT; $(BIN)/ruff check --fix --exit-zero; $(BIN)/ruff format

.PHONY: clean
clean: ## Remove caches, built files and empty folders; runs stay (`longhaul clean RUN_ID` removes a run)
	rm -rf $(CACHES) build
	find testbed compressors dashboards topologies longhaul experiments tests scripts -name __pycache__ -prune -exec rm -rf {} +
	find testbed compressors dashboards topologies longhaul experiments tests scripts -type d -empty -delete
