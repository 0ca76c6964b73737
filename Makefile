# The two commands of the README, `make demo` and `make test`, need only git, make and Python >= 3.11.
# The virtual environment is made when it is missing, when the requirements change, or when it has
# been moved; otherwise it is left alone.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What `make test-tools` installs; CI has TOOLS=anndata.
TOOLS = label-studio-sdk anndata lightning
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

ifneq ($(shell $(BIN)/python -c "import sys; print(sys.prefix)" 2>/dev/null),$(abspath $(VENV)))
$(shell rm -rf $(VENV))
endif

.PHONY: demo test test-faults test-tools lint format docs gallery results bench clean

# PAC's page is there in seconds, before DPAC trains for minutes.
demo: $(VENV)/.deep
	$(BIN)/probagg cluster digits -k 10 --method pac --out runs/demo-pac --overwrite
	$(BIN)/probagg cluster digits -k 10 --out runs/demo --overwrite

test: lint
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q

# The long part of tests/faults: hours of fuzzing, which go on where they were stopped, and a soak.
test-faults: $(VENV)/.dev
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s -m slow tests/faults
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python tests/faults/soak.py runs/soak

# The tests against other tools. Their packages need other versions of some of those in .venv, so they
# have an environment of their own, which falls back on .venv.
test-tools: $(VENV)/.tools
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(VENV)-tools/bin/python -m pytest -q -rs tests/app/export/test_tools.py tests/app/export/test_handover.py
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(VENV)-tools/bin/python -m pytest -q -rs tests/test_docs.py -k "tools.md or coming_from.md or lightning"

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The site in site/; a broken link or a missing reference is an error. The variable hides a notice.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures in docs/gallery, by the programs in examples/.
gallery: $(VENV)/.dev
	$(BIN)/python -m benchmarks draw_gallery

# docs/results.md and the README's table, from benchmarks/results.
results: $(VENV)/.dev
	$(BIN)/python -m benchmarks results_page

# The benchmarks of docs/reproduce.md that need no GPU; PROBAGG_DATA names the folder with the data.
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks pac_equality
	$(BIN)/python -m benchmarks table2
	$(BIN)/python -m benchmarks pac_order
	$(BIN)/python -m benchmarks pac_speed
	$(BIN)/python -m benchmarks opa_head
	$(BIN)/python -m benchmarks opa_sphere
	$(BIN)/python -m benchmarks dpac_digits

clean:
	rm -rf $(VENV) $(VENV)-tools runs site build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'probagg needs Python >= 3.11; pass PYTHON=/path/to/python3.11')"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.deep: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[deep,report,table]"
	@touch $@

$(VENV)/.tools: $(VENV)/.dev
	$(PYTHON) -m venv $(VENV)-tools
	$(BIN)/python -c "import site; print(f'import site; site.addsitedir({site.getsitepackages()[0]!r})')" > $$($(VENV)-tools/bin/python -c "import site; print(site.getsitepackages()[0])")/dev.pth
	$(VENV)-tools/bin/python -m pip install -qq $(TOOLS)
	$(VENV)-tools/bin/python -m pip install -qq --no-deps bertopic
	@$(VENV)-tools/bin/python -m pip install -qq --no-deps --only-binary :all: hdbscan 2> /dev/null || \
		echo "hdbscan is left out: it could not be installed as a wheel. BERTopic's transform is not tested."
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[dev,docs,deep,report,onnx,lite,table,bench]"
	@touch $@ $(VENV)/.deep
