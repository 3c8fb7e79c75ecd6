"""All that a folder has to tune, one step after another, and written into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.errors import ConfigError, Option
from grls.io.locks import alone_in
from grls.io.progress import duration
from grls.retrieve.registry import Opening
from grls.retrieve.spec import followed, read_spec, update_spec
from grls.runs.manifest import fingerprint_queries
from grls.tune.chains import ends_chains, tune_chains
from grls.tune.cross_encoder import tune_cross_encoder
from grls.tune.cut import tune_cut
from grls.tune.dev import DevQueries
from grls.tune.fusion import tune_fusion
from grls.tune.hops import ranks_by_hops, tune_hops
from grls.tune.journal import Journal
from grls.tune.options import TuneOptions
from grls.tune.priors import tune_priors
from grls.tune.rescoring import can_rescore, tune_rescoring
from grls.tune.step import CHOSEN, TuneChoice, Tuning

_TUNED = (*CHOSEN, "hops", "sha256")
"""The fields that tuning changes."""

_RESCORED = ("generative", "hybrid")
"""The kinds whose weight of rescoring is tuned."""

Step = tuple[str, Callable[[Tuning], TuneChoice]]


def tune_folder(
    folder: str | Path,
    dev: DevQueries,
    grid: TuneOptions,
    how: Opening,
    fingerprint: str,
    options: dict[str, Any] | None = None,
    single: bool = False,
    found: dict[Any, Any] | None = None,
) -> list[TuneChoice]:
    """Tune what a folder has, and write what is best into its ``grls.json``.

    Measurements stand in ``FOLDER.tune.jsonl`` until then, so that a killed run goes on.

    Args:
        folder: The retriever folder, of any kind; of a link the folder that it names.
        dev: The development queries.
        grid: What is tried.
        how: How the folder is opened.
        fingerprint: Of the retriever's models and corpus: measurements depend on it.
        options: Options (``search``, ``hops``) that are written into the folder, too; None: those that it
            holds.
        single: Tune the single step alone; hops that the folder stores stay as they are.
        found: Filled with what ranked hops have found, which the tuned folder finds again
            (:attr:`Tuning.found`).

    Raises:
        ConfigError: There is nothing to tune.
        WriteError: Another run changes the folder.
    """
    path = followed(folder)
    with alone_in(path):  # what another run writes there meanwhile would be lost, or not be tuned for
        return _tuned(path, dev, grid, how, fingerprint, dict(options or {}), single, found)


def _tuned(
    path: Path,
    dev: DevQueries,
    grid: TuneOptions,
    how: Opening,
    fingerprint: str,
    changes: dict[str, Any],
    single: bool,
    found: dict[Any, Any] | None,
) -> list[TuneChoice]:
    spec = read_spec(path) | changes
    journal = Journal(f"{path}.tune.jsonl", _settings(spec, dev, how, fingerprint))
    tuning = Tuning(path, spec, dev, grid, how, journal, {} if found is None else found)
    chosen = []
    for name, step in _steps(tuning, single):
        one = _taken(name, step, tuning)
        tuning.spec = {**tuning.spec, **one.changes}
        changes |= one.changes
        chosen.append(one)
    update_spec(path, changes)
    journal.remove()
    return chosen


def _settings(spec: dict[str, Any], dev: DevQueries, how: Opening, fingerprint: str) -> dict[str, Any]:
    """What all measurements depend on."""
    search = spec.get("search", {})
    if spec["kind"] in _RESCORED:
        search = {name: value for name, value in search.items() if not name.startswith("rescore")}
    return {
        "retriever": fingerprint,
        "queries": fingerprint_queries(dev.queries),
        "gold": dev.gold,
        "precision": how.precision,
        "search": search,
        "spec": {name: value for name, value in spec.items() if name not in _TUNED},
    }


def _taken(name: str, step: Callable[[Tuning], TuneChoice], tuning: Tuning) -> TuneChoice:
    """What a step chooses, once it is printed."""
    print(f"{name}:", flush=True)
    begun = perf_counter()
    one = step(tuning)
    gain = f"{one.measure} {100 * one.before:.1f} -> {100 * one.after:.1f}"
    print(f"{name}: {gain} ({one.what}), {duration(perf_counter() - begun)}", flush=True)
    return one


def _steps(tuning: Tuning, single: bool) -> list[Step]:
    """The steps that the folder has.

    Raises:
        ConfigError: It has none.
    """
    kind = tuning.spec["kind"]
    steps: list[Step] = []
    if kind == "hybrid":
        steps.append(("priors", tune_priors))
    if kind in _RESCORED and can_rescore(tuning):
        steps.append(("rescoring", tune_rescoring))
    if kind == "rescored":
        steps.append(("rescoring", tune_cross_encoder))
    if kind == "fusion":
        steps.append(("fusion", tune_fusion))
    if kind == "cut":
        steps.append(("cut", tune_cut))
    by_hops: list[Step] = [("hops", tune_hops)] if ranks_by_hops(tuning) else []
    by_hops += [("chains", tune_chains)] if ends_chains(tuning) else []
    steps += [] if single else by_hops
    if not steps:
        raise ConfigError(
            f"{tuning.folder} has nothing to tune{' in a single step' if by_hops else ''}: priors (kind "
            "hybrid), a generator that has learned to rescore, a cross-encoder (kind rescored), a fusion's "
            f"weights, a cut, or hops ({Option('hops.steps', 'dynamic', 'ranked')})."
        )
    return steps
