"""Training a bi-encoder from Python, and indexing a corpus with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grls.api.generator import biencoder_recipe
from grls.api.opening import build_searcher
from grls.api.searcher import Searcher, member_names
from grls.api.temporary import HeldFolder
from grls.api.training_data import place_data, training_data
from grls.data.inputs.arguments import Count, checked, checked_options, options_of
from grls.errors import ConfigError
from grls.index.options import LimitOptions
from grls.io.ending import require
from grls.io.recipes import recipe_values
from grls.models.biencoder_kinds import Kind, Similarity
from grls.models.load.base_models import find_encoder
from grls.models.precision_names import Device
from grls.retrieve.build import Building
from grls.train.biencoder.options import BiEncoderOptions
from grls.train.core.clock import Meter
from grls.train.result import TrainingResult


class BiEncoder:
    """A model that embeds texts: to train it, and to search a corpus with it.

    ::

        dense = grls.BiEncoder("all-MiniLM-L6-v2").fit(corpus, queries, gold).index(corpus)

    Attributes:
        name: The model.
        results: What its training returned, by stage (``biencoder``); empty without a training.

    Args:
        name: A model of sentence-transformers or an encoder-decoder: a folder, ``all-MiniLM-L6-v2`` (of the
            extra ``local-models``), or a hub name.
        kind: ``sentence`` (a model of sentence-transformers), ``st5`` (an encoder-decoder; its first decoder
            output is the embedding), or ``auto``.
        max_tokens: Longest text in tokens; longer texts are cut; None: that of the recipe in training, else
            that of the model.
        similarity: How vectors are compared, in training and in search: ``cosine``, ``dot``, ``euclidean`` or
            ``manhattan``; None: as the model says. A model of sentence-transformers that names none compares
            by the cosine, an encoder-decoder by the inner product (``dot``).

    Raises:
        ConfigError: There is no such model, or the kind or the similarity is unknown.
    """

    @checked
    def __init__(
        self,
        name: str | Path,
        kind: Kind = "auto",
        max_tokens: Count | None = None,
        similarity: Similarity | None = None,
    ):
        find_encoder(str(name))
        self.name = str(name)
        self.kind: Kind = kind
        self.max_tokens = max_tokens
        self.similarity = similarity
        self.results: dict[str, TrainingResult] = {}
        self._place: HeldFolder | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @checked_options(BiEncoderOptions)
    def fit(
        self,
        corpus: Any,
        queries: Any = None,
        gold: Any = None,
        dev: Any = None,
        *,
        output: str | Path | None = None,
        recipe: str | Path = "default",
        negatives: Searcher | str | Path = "bm25",
        resume: bool = False,
        max_seconds: float | None = None,
        meter: Meter | None = None,
        **options: Any,
    ) -> BiEncoder:
        """Train on queries and their gold passages; the epoch with the best dev recall is kept.

        Args:
            corpus: The passages: texts, dicts, a data frame, a folder, …
                (:func:`~grls.data.inputs.entries.corpus_of`).
            queries: The training queries (:func:`~grls.data.inputs.entries.queries_from`); None: the splits
                of the data set folder ``corpus``.
            gold: Their gold passages (:func:`~grls.data.inputs.gold.gold_of`).
            dev: Queries and gold as a pair, or the name of a split; None: the split ``dev`` of a data set
                folder, or else a tenth of the training queries (at most 200).
            output: Folder for the data set, the model, logs and checkpoints; None: a temporary folder, which
                goes with the returned object.
            recipe: One of :data:`~grls.api.generator.BIENCODER_RECIPES` (``default``, ``single-step``,
                ``local``, ``paper``, ``released``), or a YAML file.
            negatives: Retriever that ranks passages for hard negatives (``hard_negatives`` above 0): a
                searcher or folder over the same corpus, or ``bm25``.
            resume: Resume the run in ``output`` from its last checkpoint; options and data must be the same.
            max_seconds: Longest time of the training; None: no limit. When it is over, dev is measured once
                more and the best weights are kept.
            meter: Called with every step (:class:`~grls.train.core.clock.TrainingStep`).
            options: Options over the recipe, such as ``epochs=1``
                (:class:`~grls.train.biencoder.options.BiEncoderOptions`).

        Returns:
            The trained bi-encoder; this one stays as it is.

        Raises:
            ConfigError: The recipe is unknown, an option cannot be used, or the training has diverged.
            DataError: The data are malformed.
            MismatchError: The run to resume had other options or data.
            WriteError: The output cannot be written.
        """
        require("train", "training a bi-encoder")
        values = recipe_values(biencoder_recipe(recipe).layers)
        usual, most = values.get("max_tokens"), find_encoder(self.name).positions
        # The scale of a recipe is that of its model; without one it follows from the similarity of the model.
        chosen = {**values.get("fit", {}), "scale": None, "similarity": self.similarity, **options}
        fit = options_of(BiEncoderOptions, chosen, "BiEncoder.fit")
        if resume and output is None:
            raise ConfigError("resume needs output, the folder of the run to resume.")
        (miner,) = member_names([negatives])
        data = training_data(corpus, queries, gold, dev)
        place = HeldFolder(output)

        from grls.train.biencoder.run import run_biencoder
        from grls.train.core.checkpoints import refuse_unfinished

        with place.named("BiEncoder.fit"):
            if not resume:  # before its data are replaced
                refuse_unfinished(str(place.path), warn=False, model="modules.json")
            made = run_biencoder(
                data=place_data(data, place.path, resume),
                output=str(place.path),
                source=self.name,
                kind=self.kind,
                max_tokens=self.max_tokens or (min(usual, most) if usual and most else usual),
                fit=fit,
                negatives=miner,
                resume=resume,
                max_seconds=max_seconds,
                meter=meter,
            )
        trained = BiEncoder(made.model)
        trained.results, trained._place = {"biencoder": made}, place
        return trained

    @checked
    def index(
        self, corpus: Any, output: str | Path | None = None, batch_size: Count = 32, device: Device = "auto"
    ) -> Searcher:
        """Embed a corpus, to search it.

        Args:
            corpus: The passages (:func:`~grls.data.inputs.entries.corpus_of`).
            output: The retriever folder; an earlier one there is replaced; None: a temporary folder.
            batch_size: Passages encoded together.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.

        Raises:
            ConfigError: The model is of another kind, or the device does not exist.
            DataError: The corpus is malformed.
            WriteError: The folder cannot be written.
        """
        place = HeldFolder(output)
        asked, limits = "st5" if self.kind == "st5" else "dense", LimitOptions(input=self.max_tokens)
        how = Building(
            str(place.path), asked, limits=limits, batch_size=batch_size, device=device,
            similarity=self.similarity,
        )  # fmt: skip
        with place.named("BiEncoder.index"):
            return build_searcher(self.name, corpus, place, how)
