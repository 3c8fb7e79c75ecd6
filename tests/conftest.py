"""Shared paths and small models."""

import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Before torch is loaded: the models here are too small for two threads, which only wait for each other where
# the machine is shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
sys.path.append(str(Path(__file__).parents[1] / ".ci"))

import pytest
from hypothesis import settings

# No test is about time: a busy machine made examples fail by hypothesis' deadline of 200 ms.
settings.register_profile("grls", deadline=None)
settings.load_profile("grls")

SLOW = (
    "adapters/test_adapters_docs.py::test_the_error_says_which_extra",
    "benchmarks/test_ablate.py",
    "benchmarks/test_bench_train.py::test_it_prints",
    "benchmarks/test_compare.py::test_everything_runs_and_goes_on",
    "benchmarks/test_papers.py::test_every_command",
    "benchmarks/test_ralm_study.py",
    "benchmarks/test_seeds.py::test_a_small_run",
    "benchmarks/test_smallest.py::test_a_benchmark",
    "benchmarks/test_smallest.py::test_both_versions",
    "benchmarks/test_smallest.py::test_the_bi_encoders",
    "cluster/test_ray.py::test_a_run_is_that_of_one_process",
    "cluster/test_ray.py::test_encodings_are_those_of_one_process_though_a_worker_is_killed",
    "decode/gpu/test_step.py::test_a_step_can_be_made_into_kernels",
    "fitting/test_run_fit.py::test_models_that_came_later",
    "serve/test_replicas.py::test_a_new_version",
    "serve/test_replicas.py::test_answers_are_those",
    "serve/test_soak.py",
    "site/test_notebooks.py::test_a_notebook_runs",
    "train/core/test_malloc_trim.py",
    "train/generator/test_chain_fit.py::test_the_benchmark_of_steps",
    "train/generator/test_ddp.py::test_a_",
    "train/generator/test_resume.py::test_a_run_that_is_resumed_with_other_options",
    "train/generator/test_resume.py::test_a_run_that_sigterm_ends",
    "train/generator/test_resume.py::test_before_the_first_checkpoint",
    "train/test_processes.py::test_the_passages_of_all_processes",
    "train/test_processes.py::test_torchrun_starts_two_processes",
    "train/test_sharded.py::test_a_bi_encoder_in_",
    "train/test_sharded.py::test_a_reranker_in_shards",
    "train/test_sharded.py::test_shards_have_the_losses",
    "train/test_sharded.py::test_chains_in_bfloat16",
    "wheel/test_container.py::test_the_command_is_ready",
    "wheel/test_search_alone.py::test_every_kind_is_searched",
    "wheel/test_search_alone.py::test_runs_are_made_and_evaluated",
    "wheel/test_search_alone.py::test_the_readme_runs",
    "wheel/test_wheel.py::test_a_user_s_program_is_type_checked",
    "wheel/test_resolve.py",
)
"""Tests that `make test` leaves out, by the beginnings of their names. They start processes or train; what
they show is shown of another kind by a quicker one. `make test-all` runs them."""

FIRST = (
    "api/test_updating.py::test_any_changes_find_what_one_over_the_new_corpus_finds",
    "decode/gpu/test_step.py::test_a_compiled_step_finds",
    "test_configs.py::test_shipped_configs",
    "test_configs.py::test_the_papers",
    "train/biencoder/test_train_biencoder.py::test_shipped_configs_train",
    "train/generator/test_chain_fit.py::test_a_run_whose_retriever_has_changed_is_not_resumed",
    "train/generator/test_rescoring.py::test_a_fit_learns_to_rescore",
    "train/doc2query/test_query_generator.py::test_a_model_learns_to_write_queries",
    "train/riches/test_train_riches.py::test_a_model_learns_to_quote",
    "train/generator/test_resume.py::test_a_run_is_not_resumed_with_other_batches",
    "train/generator/test_resume.py::test_kill_9_and_resume",
    "train/generator/test_resume.py::test_resume_at_the_end_of_an_epoch",
    "train/test_refusals.py::test_",
    "train/test_same_weights.py",
)
"""Tests of several cases, of which `make test` runs the first."""


LONGEST = (
    "faults/test_faults.py", "test_configs.py", "models/test_foreign_models.py",
    "fitting/test_run_fit.py", "cluster/", "serve/test_replicas.py", "train/test_sharded.py",
    "train/generator/", "site/", "wheel/", "train/test_processes.py", "faults/test_determinism.py",
    "benchmarks/", "serve/test_tools.py", "api/test_wrong_calls.py", "decode/", "explain/", "test_cli.py",
)  # fmt: skip
"""What begins first, so that no process is still at a long one when the others are done."""


def pytest_configure(config: pytest.Config) -> None:
    """Modules are dealt out in the order of :data:`LONGEST`, and not by the number of their tests."""
    config.option.loadscopereorder = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays: each look for garbage in it would take seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, and put the longest first."""
    seen: set[str] = set()
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        case = name.partition("[")[0]
        if name.startswith(SLOW) or (name.startswith(FIRST) and case in seen):
            item.add_marker(pytest.mark.slow)
        seen.add(case)
    first = {f"tests/{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: next((n for name, n in first.items() if item.nodeid.startswith(name)), 99))


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """No test cuts the power: what was written is there for whoever reads it, also after a kill."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


_UNFREEZE = gc.unfreeze


@pytest.fixture(scope="session", autouse=True)
def _what_is_frozen_stays() -> Iterator[None]:
    """A server that begins looks for garbage among all objects, those of all tests before, too: seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture
def unfreezing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage is looked for as outside the tests."""
    monkeypatch.setattr(gc, "unfreeze", _UNFREEZE)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small data set; it is not to be changed."""
    from small_data import write_small

    return write_small(tmp_path_factory.mktemp("small") / "data")


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of every kind of retriever side by side, the data set ``data``, a cross-encoder
    ``encoder`` and an encoder ``bert``. What is there is not to be changed.
    """
    from composite_specs import COMPOSITES, write_kinds, written

    place = write_kinds(tmp_path_factory.mktemp("kinds"))
    ranked = {"kind": "hops", "retriever": "../dense", "hops": {"steps": "ranked", "max": 3}}
    for name, spec in {**COMPOSITES, "ranked": ranked}.items():
        written(place / name, spec)
    return place


@pytest.fixture(scope="session")
def quotes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set ``data``, and in ``model`` a language model that learned to quote it; not to be changed."""
    from filelock import FileLock
    from quoting_model import quoting

    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    with FileLock(place / "quotes.lock"):  # it trains for seconds: one process does
        if not (place / "quotes").is_dir():
            quoting(place / "made").rename(place / "quotes")
    return place / "quotes"


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """`grls serve` in the process of a test changes the logs, for good: the next test has them as before."""
    logs = [logging.getLogger(name) for name in ("grls", "uvicorn", "asyncio", "mcp")]
    before = [(log, list(log.handlers), log.propagate, log.level) for log in logs]
    yield
    for log, handlers, propagate, level in before:
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)
