# Every target sets up what it needs; on Debian 12 or 13 as root a fresh clone needs nothing else.
VENV := build/venv
PY := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export OMP_NUM_THREADS := 1

# What the gates and some tests run, beside the lab's own packages.
CHECKERS := shellcheck lua-check
TESTED_WITH := gcc libc6-dev libslurm-dev chromium fonts-dejavu-core

.PHONY: venv packages demo test quick check bench bench-rescale soak fuzz faults dist clean

venv:
	@tools/bootstrap

packages: venv
	@$(VENV)/bin/ones lab packages

demo: packages
	@$(PY) demo/run.py

# Two at a time, for the tests on a real Slurm mostly wait; a file stays together, for its tests share a lab.
test: packages
	@tools/debian-packages $(TESTED_WITH)
	$(PY) -m pytest -n 2 --dist loadfile

quick: venv
	$(PY) -m pytest -m "not slurm"

check: venv
	@tools/debian-packages $(CHECKERS)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	shellcheck tools/bootstrap tools/debian-packages .ci/run sbatch_templates/*.sbatch
	luacheck -q --no-color --config site_configs/slurm/.luacheckrc site_configs/slurm/*.lua

bench: packages
	$(PY) -m benchmarks.run

# Ten million broken inputs over all readers of outside text; an hour or two on two cores.
fuzz: venv
	$(PY) tests/fuzz/fuzz.py

# A wheel and an sdist with site files, templates, man pages and completions, in dist/.
dist: venv
	@$(PY) tools/share.py
	$(PY) -m build --no-isolation --outdir dist . >/dev/null
	@ls -l dist

# What a change of size costs: in memory, by a requeue, and by torchrun's elastic restart.
bench-rescale: packages
	$(PY) -m benchmarks.run rescale

# Two hundred changes of size and deaths in a row, drawn by chance.
soak: venv
	ONES_CHANGES=200 $(PY) -m pytest -n 0 -q -s tests/elastic/test_live_random.py

# Five hundred faults on a cluster of eight nodes, in about an hour; FAULTS="--seed 7 --count 40" for others.
faults: packages
	$(PY) tests/faults/faults.py $(FAULTS)

clean:
	rm -rf build dist share *.egg-info
