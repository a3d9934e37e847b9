# Two commands do everything on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt
RUN    ?= runs/demo

# Without bytecode every process of the tests would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo wheel docs browser test test-again same check format bench gauntlet torture clean help

help:
	@echo "make demo    install, train on handwritten digits, leave pictures and a model (about 5 minutes)"
	@echo "make test    install, run all tests"
	@echo "make check   format, lint and types"
	@echo "make wheel   build the wheel, install it into a fresh environment, try it"
	@echo "make docs    build the documentation as a site, in site/; every link and anchor is checked"
	@echo "make test-again N=10  all tests N times in random order, most of them on busy cores; tools/results/again.md"
	@echo "make same BASE=REV    train a matrix of runs with the code of REV and with this, compare every byte"
	@echo "make gauntlet  every fault and every healthy recipe on all bases; hours; the tables land in gauntlet/results"
	@echo "make torture  kills, full disks, power losses, bit rot, NaN storms, hostile files; under an hour on two cores"
	@echo "make bench   all benchmarks; the tables land in bench/results"

# torch first and pinned: an open range would pull gigabytes of CUDA packages onto a CPU machine.
$(VENV)/ready: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch numpy setuptools
	$(PIP) --no-build-isolation -e .
	@touch $@

$(VENV)/ready-dev: $(VENV)/ready
	$(PIP) --no-build-isolation -e ".[dev]"
	$(PIP) --no-deps denoising-diffusion-pytorch ema-pytorch einops  # watched by an example; it asks for torchvision
	@touch $@

demo: $(VENV)/ready
	@rm -rf $(RUN)
	$(BIN)/safelight demo --run $(RUN)

wheel: $(VENV)/ready
	$(BIN)/python -m tools.wheel

docs: $(VENV)/ready
	$(PIP) --no-build-isolation -e ".[site]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m tools.site

# The pages are tested in Chromium. Root on Debian or Ubuntu gets it; elsewhere those tests say that they were skipped.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium \
	    || echo "Chromium cannot be installed: the tests of the pages are skipped."; \
	else echo "Chromium is not installed: the tests of the pages are skipped."; fi

# One thread per process: two test processes share the cores, whole files at a time, the longest first.
test: $(VENV)/ready-dev browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

N ?= 10
test-again: $(VENV)/ready-dev browser
	$(BIN)/python -m tools.again --runs $(N)

BASE ?= HEAD
same: $(VENV)/ready-dev
	$(BIN)/python -m tools.same $(BASE)

# One after the other, on a quiet machine.
bench: $(VENV)/ready-dev
	$(BIN)/python -m bench.overhead
	$(BIN)/python -m bench.memory
	$(BIN)/python -m bench.data
	$(BIN)/python -m bench.record
	$(BIN)/python -m bench.watch
	$(BIN)/python -m bench.neighbours
	$(BIN)/python -m bench.dashboard
	$(BIN)/python -m bench.variance
	$(BIN)/python -m bench.evaluate
	$(BIN)/python -m bench.calibration
	$(BIN)/python -m bench.scale
	$(BIN)/python -m bench.divided
	$(BIN)/python -m bench.peers

gauntlet: $(VENV)/ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m gauntlet --seeds 2 --healthy 3 --jobs 2 --loud -o gauntlet/results
	OMP_NUM_THREADS=1 $(BIN)/python -m gauntlet.healing --jobs 2

torture: $(VENV)/ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m torture --jobs 2 -o torture/results

check: $(VENV)/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: $(VENV)/ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build *.egg-info
