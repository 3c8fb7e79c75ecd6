"""All that a retriever has to tune, one step after another."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.errors import ConfigError, Option
from grls.io.progress import duration
from grls.io.work import Journal, alone_in
from grls.retrieve.registry import Opening, class_of
from grls.retrieve.spec import MANIFEST, followed, read_spec, update_spec
from grls.runs.portions import fingerprint_queries
from grls.tune.hops import CHAINS, HOPS
from grls.tune.options import TuneOptions
from grls.tune.step import CHOSEN, DevQueries, Step, TuneChoice, Tuning
from grls.tune.weights import RESCORING

_TUNED = (*CHOSEN, "hops", "sha256")
"""The fields that tuning changes."""


def tune_folder(
    folder: str | Path,
    dev: DevQueries,
    grid: TuneOptions,
    opening: Opening,
    fingerprint: str,
    options: dict[str, Any] | None = None,
    single: bool = False,
) -> list[TuneChoice]:
    """Tune a folder, and write the best settings into its ``grls.json``.

    Args:
        folder: The retriever folder, of any kind; of a link the folder that it names.
        dev: The development queries.
        grid: The settings to try.
        opening: How the folder is opened.
        fingerprint: Of the retriever's models and corpus: measurements depend on it.
        options: Options (``search``, ``hops``) that are written into the folder, too; None: its own.
        single: Tune the single step alone; hops that the folder stores stay unchanged.
    """
    path, changes = followed(folder), options or {}
    with alone_in(path):  # what another run writes there meanwhile would be lost, or not be tuned for
        tuning = Tuning(path, read_spec(path) | changes, dev, grid, opening)
        return tune_spec(tuning, fingerprint, lambda chosen: update_spec(path, {**changes, **chosen}), single)


def tune_spec(
    tuning: Tuning, fingerprint: str, write: Callable[[dict[str, Any]], None], single: bool = False
) -> list[TuneChoice]:
    """Tune a retriever, whose folder need not be written yet, and ``write`` the fields that were chosen.

    Measurements stand in ``FOLDER.tune.jsonl`` until then, so that a killed run goes on.
    """
    path, spec, dev = tuning.folder, tuning.spec, tuning.dev
    search = spec.get("search", {})
    kind = class_of(spec.get("kind", "generative"), path / MANIFEST)
    named = [target.partition(":") for target in getattr(kind, "tuned_by", ())]
    of_kind: list[Step] = [getattr(import_module(module), name) for module, _, name in named]
    if RESCORING in of_kind:
        search = {name: value for name, value in search.items() if not name.startswith("rescore")}
    settings = {  # what all measurements depend on
        "retriever": fingerprint,
        "queries": fingerprint_queries(dev.queries),
        "gold": dev.gold,
        "precision": tuning.opening.precision,
        "search": search,
        "spec": {name: value for name, value in spec.items() if name not in _TUNED},
    }
    steps = [step for step in of_kind if step.applies(tuning)]
    by_hops = [step for step in (HOPS, CHAINS) if step.applies(tuning)]
    steps += [] if single else by_hops
    if not steps:
        raise ConfigError(
            f"{path} has nothing to tune{' in a single step' if by_hops else ''}: priors (kind hybrid), a "
            "generator that has learned to rescore, a cross-encoder (kind rescored), a fusion's weights, or "
            f"hops ({Option('hops.steps', 'dynamic', 'ranked')})."
        )
    choices, changes = list[TuneChoice](), dict[str, Any]()
    with Journal(f"{path}.tune.jsonl", settings) as tuning.journal:
        for step in steps:
            print(f"{step.name}:", flush=True)
            begun = perf_counter()
            choice = step.tune(tuning)
            gain = f"{choice.measure} {100 * choice.before:.1f} -> {100 * choice.after:.1f}"
            print(f"{step.name}: {gain} ({choice.words}), {duration(perf_counter() - begun)}", flush=True)
            tuning.spec = {**tuning.spec, **choice.changes}
            changes |= choice.changes
            choices.append(choice)
        write(changes)
        tuning.journal.remove()
    return choices
