# Every target sets up what it needs; on Debian 12 or 13 as root a fresh clone needs nothing else.
VENV := build/venv
PY := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export OMP_NUM_THREADS := 1

.PHONY: venv packages demo test quick check bench clean

venv:
	@tools/bootstrap

packages: venv
	@$(VENV)/bin/ones lab packages

demo: packages
	@$(PY) demo/run.py

# Two at a time, for the tests on a real Slurm mostly wait; a file stays together, for its tests share a lab.
test: packages
	$(PY) -m pytest -n 2 --dist loadfile

quick: venv
	$(PY) -m pytest -m "not slurm"

check: venv
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	shellcheck tools/bootstrap .ci/run sbatch_templates/*.sbatch

bench: packages
	$(PY) -m benchmarks.run

clean:
	rm -rf build *.egg-info
