# Short names for frequent commands. `make` alone builds the extensions in place.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

.PHONY: build debug test parity lint bench clean

build:            ## build the native extensions in place
	$(PYTHON) setup.py -q build_ext --inplace

debug:            ## build them with bounds checks, line tracing, -O1 -g
	MF_DEBUG=1 $(PYTHON) setup.py -q build_ext --inplace --force

test: build       ## run the tests of ./run_tests.sh, without its set-up
	$(PYTHON) -m pytest -m "not slow and not gpu"

parity: build     ## compare the rules with their plain reference, with many examples
	$(PYTHON) -m pytest tests/parity --hypothesis-profile=thorough --timeout=3600

lint:             ## run ruff (rules and format) and mypy
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

bench: build      ## compare original with ultra_fast, and measure the simulator
	$(PYTHON) benchmark_performance.py
	$(PYTHON) benchmark_performance.py --simulator

clean:            ## delete built files; keep runs and the virtual environment
	rm -rf build dist *.egg-info
	find envs metta_fast -name '*.so' -delete
