"""All that a folder has to tune, one step after another, and written into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.errors import ConfigError
from grls.io.progress import duration
from grls.retrieve.registry import Opening
from grls.retrieve.spec import read_spec, update_spec
from grls.runs.manifest import fingerprint_queries
from grls.tune.chains import ends_chains, tune_chains
from grls.tune.cut import tune_cut
from grls.tune.dev import DevQueries
from grls.tune.fusion import tune_fusion
from grls.tune.journal import Journal
from grls.tune.options import TuneOptions
from grls.tune.priors import tune_priors
from grls.tune.rescoring import can_rescore, tune_rescoring
from grls.tune.step import TuneChoice, Tuning

Step = tuple[str, Callable[[Tuning], TuneChoice]]


def tune_folder(
    folder: str | Path,
    dev: DevQueries,
    grid: TuneOptions,
    how: Opening,
    fingerprint: str,
    options: dict[str, Any] | None = None,
) -> list[TuneChoice]:
    """Tune what a folder has, and write what is best into its ``grls.json``.

    What is measured stands in ``FOLDER.tune.jsonl`` until then, so that a killed run goes on.

    Args:
        folder: The retriever folder, of any kind.
        dev: The development queries.
        grid: What is tried.
        how: How the folder is opened.
        fingerprint: Of the retriever's models and corpus: what is measured depends on it.
        options: Options (``search``, ``hops``) that are written into the folder, too; None: those that it
            holds.

    Raises:
        ConfigError: There is nothing to tune.
    """
    path = Path(folder)
    spec = read_spec(path)
    changes: dict[str, Any] = dict(options or {})
    spec |= changes
    settings = {
        "retriever": fingerprint,
        "queries": fingerprint_queries(dev.queries),
        "gold": dev.gold,
        "precision": how.precision,
        "search": {name: v for name, v in spec.get("search", {}).items() if not name.startswith("rescore")},
        "spec": _untuned(spec),
    }
    journal = Journal(f"{path}.tune.jsonl", settings)
    tuning = Tuning(path, spec, dev, grid, how, journal)
    chosen = []
    for name, step in _steps(tuning):
        print(f"{name}:", flush=True)
        begun = perf_counter()
        one = step(tuning)
        tuning.spec = {**tuning.spec, **one.changes}
        changes |= one.changes
        chosen.append(one)
        print(
            f"{name}: {one.measure} {100 * one.before:.1f} -> {100 * one.after:.1f} ({one.what}), "
            f"{duration(perf_counter() - begun)}",
            flush=True,
        )
    update_spec(path, changes)
    journal.remove()
    return chosen


def _untuned(spec: dict[str, Any]) -> dict[str, Any]:
    """What tuning does not change."""
    tuned = {"priors", "empty_weight", "search", "hops", "weights", "size", "sha256"}
    return {name: value for name, value in spec.items() if name not in tuned}


def _steps(tuning: Tuning) -> list[Step]:
    """The steps that the folder has.

    Raises:
        ConfigError: It has none.
    """
    kind = tuning.spec.get("kind", "generative")
    found: list[Step] = []
    if kind == "hybrid":
        found.append(("priors", tune_priors))
    if kind in ("generative", "hybrid") and can_rescore(tuning):
        found.append(("rescoring", tune_rescoring))
    if kind == "fusion":
        found.append(("fusion", tune_fusion))
    if kind == "cut":
        found.append(("cut", tune_cut))
    if ends_chains(tuning):
        found.append(("chains", tune_chains))
    if not found:
        raise ConfigError(
            f"{tuning.folder} has nothing to tune: priors (kind hybrid), a generator that has learned to "
            "rescore, hops until DONE (`--hops.steps dynamic` of `grls index`), a fusion's weights, or a cut."
        )
    return found
