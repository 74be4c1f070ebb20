# Two commands do everything: `make reproduce` runs the main job, `make test` passes the tests.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
PROFILE ?= demo
CORES ?= 2
VENV := $(CURDIR)/.venv
READY := $(VENV)/.ready
export PATH := $(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ifdef REDDITBIAS_MIRROR
export REDDITBIAS_MIRROR := $(abspath $(REDDITBIAS_MIRROR))
endif

.PHONY: help reproduce full report test lab notebooks pages docs bench bench-debias bench-retrieval bench-candidates clean

help:
	@echo "make reproduce   tables and figures, from data to README, by the notebooks (PROFILE=$(PROFILE), CORES=$(CORES))"
	@echo "make full        debiasing: every bias type by RedditBias' methods and two controls (PROFILE=smollm; a day on 2 cores; a run that was stopped goes on, RESUME=1 leaves out what has a record)"
	@echo "make report      one HTML file on all papers, from results/ and figures/, in runs/report/index.html (seconds)"
	@echo "make test        every test; the notebooks' examples are among them, run with the built package"
	@echo "make lab         JupyterLab in this project"
	@echo "make notebooks   run the notebooks in place, so that their saved outputs are fresh (NOTEBOOKS: only these)"
	@echo "make pages       the papers' notebooks as HTML pages without their code, in runs/pages"
	@echo "make docs        README, docs and all notebooks as a site, in runs/site/index.html (a minute)"
	@echo "make bench       time scoring against other libraries (about 2 hours on 2 cores; a run that was stopped goes on)"
	@echo "make bench-debias  time a training step of each debiasing method (4 minutes)"
	@echo "make bench-retrieval  time the scan of a dump of 1 GB (2 minutes)"
	@echo "make bench-candidates  time the best of 500,000 candidates against faiss-cpu (six minutes)"
	@echo "make clean       remove what was built and run (the cache outside this folder stays)"

# Debian keeps Python's venv in a package of its own: as root it is installed, otherwise the command is printed.
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq python3-venv; } || { \
	  echo "Python's venv module is missing: run 'apt-get install python3-venv' as root, then this command again"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# pip would compile 21,000 modules one by one: --no-compile leaves them to all cores, files of other Pythons among them.
$(READY): $(VENV)/bin/pip constraints.txt settings.ini setup.py pyproject.toml
	@echo "installing into .venv: 2 to 5 minutes, 2.4 GB (runs/log/install.log)"
	@mkdir -p runs/log
	@$(VENV)/bin/pip install --no-compile --constraint constraints.txt --editable '.[dev]' > runs/log/install.log 2>&1 || \
	  { tail -n 15 runs/log/install.log; echo "pip could not install all that is needed: see runs/log/install.log"; exit 1; }
	@$(VENV)/bin/python -m compileall -qq --workers 0 $(VENV)/lib || true
	@touch $@

# SNAKEMAKE holds further options or targets, such as SNAKEMAKE="--executor slurm --jobs 20" or SNAKEMAKE=search.
# The lock is the operating system's, so that a killed run leaves none behind; what it left half-made is made anew.
reproduce: $(READY)
	@mkdir -p runs
	@$(if $(shell command -v flock),flock --nonblock --conflict-exit-code 75 runs/.lock) python workflow/reproduce.py --configfile config/$(PROFILE).yaml $(if $(RESUME),--config resume=True) --cores $(CORES) $(SNAKEMAKE) || \
	  { [ $$? != 75 ] || echo "another 'make reproduce' is running here"; exit 1; }

# The same for config/smollm.yaml, unless PROFILE names another.
full:
	@$(MAKE) --no-print-directory reproduce PROFILE=$(if $(filter file,$(origin PROFILE)),smollm,$(PROFILE))

report: $(READY)
	@redditbias report --html runs/report/index.html

# REDDITBIAS_STRICT=1 lets no test skip that lacks the released data; TESTS holds options of pytest. Code is formatted and checked first. Tests run side
# by side, each on one core. The notebooks' examples are among them, with the code of the package (tests/house/test_package.py).
test: $(READY)
	@ruff format --check --quiet nbs tests bench workflow site || { echo "run: ruff format nbs tests bench workflow site"; exit 1; }
	@ruff check --quiet nbs tests bench workflow site
	@redditbias fetch || { [ -z "$${REDDITBIAS_STRICT:-}" ] && echo "Tests that need a release are skipped, and counted at the end."; }
	@python -m compileall -qq redditbias_repro tests # once, where PYTHONDONTWRITEBYTECODE has every process do it
	@OMP_NUM_THREADS=1 pytest --numprocesses $(CORES) --dist worksteal --durations 20 --durations-min 5 $(TESTS)

lab: $(READY)
	jupyter lab

notebooks: $(READY)
	python workflow/save_outputs.py $(NOTEBOOKS)
	nbdev_clean

pages: $(READY)
	@jupyter nbconvert --log-level WARN --to html --output-dir runs/pages \
	  --TagRemovePreprocessor.enabled True --TagRemovePreprocessor.remove_input_tags hide-input $$(grep -L default_exp nbs/papers/*.ipynb)
	@ls runs/pages/*.html

$(VENV)/.docs: $(READY)
	@$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@

# A link between pages that leads nowhere is an error.
docs: $(VENV)/.docs
	@mkdir -p runs/site_source
	NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --strict --config-file site/mkdocs.yml
	@ls runs/site/index.html

$(VENV)/.bench: $(READY)
	@$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

# BENCH holds options, such as BENCH="--device cuda --dtype bfloat16" or BENCH="--inputs redditbias --fresh"
bench: $(VENV)/.bench
	@python bench/scoring.py $(BENCH)

bench-debias: $(READY)
	@python bench/debias.py $(BENCH)

bench-retrieval: $(READY)
	@python bench/retrieval.py $(BENCH)

bench-candidates: $(VENV)/.bench
	@python bench/candidates.py $(BENCH)

clean:
	rm -rf $(VENV) runs .snakemake .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
