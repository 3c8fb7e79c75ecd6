"""The speeds of a run: measured once, and kept beside it, so that a run that goes on plans the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from grls.errors import DataError
from grls.fitting.clock import TimeIsUp
from grls.fitting.facts import DataFacts
from grls.fitting.machine import Machine
from grls.fitting.models import BaseModels
from grls.fitting.options import FitOptions
from grls.fitting.plain import make_copy, opened_name
from grls.fitting.sample import write_sample
from grls.fitting.speeds import Speeds, quickest_parts
from grls.io.files import read_json, write_json
from grls.io.logs import quiet, without_warnings
from grls.io.temporary import temporary

TIMING = "timing.json"
"""The file in the output folder."""

_WRITER_BUDGET = 240.0
"""Seconds of the smallest budget for which a generator is measured on a CPU: it would not fit into less."""

_AGAIN = 0.05
"""The share of a budget that measuring may take where it is repeated."""

_MEASURING = 0.25
"""The share of a budget after which nothing more is measured."""

_TIMES = 3
"""The most measurements."""


def known_speeds(
    data: str | Path,
    output: str | Path,
    facts: DataFacts,
    machine: Machine,
    models: BaseModels,
    options: FitOptions,
    enough: Callable[[Speeds, float], bool] = lambda speeds, took: True,
    copies: bool = False,
) -> tuple[Speeds, float]:
    """The speeds that ``output`` holds, or else measured and written there.

    Another program that works for a few seconds makes every part look slow. So speeds that would leave
    something out are measured again, while that takes little of the budget, and the least of each is kept:
    also of what was measured for another budget.

    Args:
        data: The data set.
        output: Where the run writes.
        facts: What the data are like.
        machine: What the machine can do.
        models: The models to begin with.
        options: What the user has chosen.
        enough: Whether nothing is left out at some speeds, after some seconds of measuring.
        copies: Keep plain weights of a generator in ``output``, for the run that follows.

    Returns:
        The speeds, and the seconds that measuring them took.

    Raises:
        ConfigError: A model cannot be opened, or not be trained.
    """
    file = Path(output) / TIMING
    settings = _settings(facts, machine, models, options)
    known = _kept(file, settings, options)
    if known is not None and (known.same_budget or enough(known.speeds, known.seconds)):
        return known.speeds, known.seconds
    begun = perf_counter()
    place = Path(output) if copies else None
    speeds = measured_speeds(data, facts, machine, models, options, place)
    speeds = speeds if known is None else quickest_parts(known.speeds, speeds)
    one = took = perf_counter() - begun
    for _ in range(_TIMES - 1):
        if options.seconds is None or took + one > _AGAIN * options.seconds or enough(speeds, took):
            break
        speeds = quickest_parts(speeds, measured_speeds(data, facts, machine, models, options, place))
        took = perf_counter() - begun
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"settings": settings, "budget": options.seconds, "speeds": speeds.record(), "seconds": took}
    write_json(file, content)
    return speeds, took


def forget_speeds(output: str | Path, new: bool) -> None:
    """Remove the speeds that led to no plan: they are measured anew next time.

    Args:
        output: Where the run would write.
        new: Whether the folder was made for them; it then goes, too, if nothing else is there.
    """
    (Path(output) / TIMING).unlink(missing_ok=True)
    if new:
        with suppress(OSError):
            Path(output).rmdir()


def measured_speeds(
    data: str | Path,
    facts: DataFacts,
    machine: Machine,
    models: BaseModels,
    options: FitOptions,
    copies: Path | None = None,
) -> Speeds:
    """Measure a few steps on a sample of the data.

    ``copies`` is the output of the run that keeps plain weights of the generator; None: none are kept.

    Raises:
        ConfigError: A model cannot be opened, or not be trained.
    """
    from grls.fitting.measure import Bench

    quiet()
    with temporary(Path(tempfile.gettempdir()) / "grls-fit") as folder, without_warnings():
        sample = folder / "sample"
        write_sample(data, facts.train, sample, options.seed)
        limit = None if options.seconds is None else _MEASURING * options.seconds
        bench = Bench(sample, facts, machine, options, limit)
        words, encoder, writer = bench.bm25(), None, None
        with suppress(TimeIsUp):  # there is no time for a model of which not even a step can be measured
            encoder = None if models.biencoder is None else bench.encoder(models.biencoder)
            if models.generator is not None and writer_may_fit(machine, options):
                if copies is not None:
                    make_copy(models.generator.name, copies)
                writer = bench.writer(models.generator, opened_name(models.generator.name, copies))
        return Speeds(*words, encoder, writer)


def writer_may_fit(machine: Machine, options: FitOptions) -> bool:
    """Whether the budget is so large that a generator is worth measuring."""
    return options.seconds is None or bool(machine.gpu) or options.seconds >= _WRITER_BUDGET


def _settings(facts: DataFacts, machine: Machine, models: BaseModels, options: FitOptions) -> dict[str, Any]:
    """What speeds depend on."""
    named = (models.biencoder, models.generator)
    return {
        "models": [None if model is None else model.name for model in named],
        "writer": writer_may_fit(machine, options),
        "words": facts.words,
        "hops": facts.hops,
        "cores": machine.cores,
        "gpu": machine.gpu,
        "precision": [options.precision, machine.precision],
    }


class _Known(NamedTuple):
    """What an earlier call measured.

    Attributes:
        speeds: The speeds.
        seconds: Seconds that measuring took.
        same_budget: Whether it was for the same budget, so that the plan is the same.
    """

    speeds: Speeds
    seconds: float
    same_budget: bool


def _kept(file: Path, settings: dict[str, Any], options: FitOptions) -> _Known | None:
    """What an earlier call measured under the same settings; None: nothing."""
    if not file.is_file():
        return None
    try:
        content = read_json(file)
        if content["settings"] != settings:
            return None
        same = content.get("budget", options.seconds) == options.seconds
        return _Known(Speeds.of_record(content["speeds"]), float(content["seconds"]), same)
    except (AttributeError, DataError, KeyError, OverflowError, TypeError, ValueError):
        return None  # a measurement is soon repeated
