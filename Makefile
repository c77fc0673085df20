# Short names for the commands of the day. `make` alone builds the extensions in place.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

.PHONY: build debug test parity lint bench clean

build:            ## the native extensions, in place
	$(PYTHON) setup.py -q build_ext --inplace

debug:            ## the same with bounds checks, line tracing, -O1 -g
	MF_DEBUG=1 $(PYTHON) setup.py -q build_ext --inplace --force

test: build       ## what ./run_tests.sh runs, without setting up
	$(PYTHON) -m pytest -m "not slow and not gpu"

parity: build     ## the rules against their plain reference, at length
	$(PYTHON) -m pytest tests/parity --hypothesis-profile=thorough --timeout=3600

lint:             ## ruff (rules and format) and mypy
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

bench: build      ## original against ultra_fast, and the simulator alone
	$(PYTHON) benchmark_performance.py
	$(PYTHON) benchmark_performance.py --simulator

clean:            ## built files; runs and the virtual environment stay
	rm -rf build dist *.egg-info
	find envs metta_fast -name '*.so' -delete
