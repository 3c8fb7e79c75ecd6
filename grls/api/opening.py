"""Making searchers: a folder is opened, here or from the hub; BM25, fusions, and searchers of models."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grls.api.searcher import Searcher, composing, composite, named_member
from grls.data.inputs.entries import corpus_of
from grls.data.inputs.tables import existing_path
from grls.data.words import Analyzer
from grls.errors import ConfigError
from grls.io.arguments import Count, checked, checked_options
from grls.io.ending import quiet
from grls.io.files import TemporaryFolder, refuse_unusable
from grls.models.option_names import Device, PrecisionName
from grls.retrieve.bm25 import USUAL_BM25, BM25Options, BM25Retriever, Variant
from grls.retrieve.fusion.retriever import Fusion, FusionRetriever, Method, fusion_spec
from grls.retrieve.hub_names import is_on_the_hub
from grls.retrieve.registry import Opening, open_member
from grls.retrieve.spec import MANIFEST

if TYPE_CHECKING:
    from grls.retrieve.build import Building

log = logging.getLogger(__name__)


@checked
def load(
    name: str | Path,
    *,
    revision: str | None = None,
    device: Device = "auto",
    precision: PrecisionName = "float32",
    truncate_queries: bool = False,
) -> Searcher:
    """Open a retriever of any kind, with what is tuned in it.

    Args:
        name: A retriever folder, the folder of a run of ``grls fit``, or the name of a repository on the hub
            (``user/name``) where there is no such folder. Files from the hub are compared with their
            checksums, and no code among them is run.
        revision: Branch, tag or commit on the hub; None: the newest.
        device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.
        precision: Precision of its models; see :class:`~grls.retrieve.registry.Opening`.
        truncate_queries: Cut queries that are too long for its models; false refuses them.

    Raises:
        ConfigError: There is no such repository, the hub cannot be reached, or a folder has a revision.
        DataError: There is no retriever.
        MismatchError: The folder is damaged, or its parts do not belong together.
    """
    opening = Opening(device, precision, truncate_queries=truncate_queries)
    if is_on_the_hub(name):
        from grls.retrieve.hub import download

        name, opening = download(str(name), revision), replace(opening, verify=True)
    elif revision is not None:
        raise ConfigError(f"{name} is no repository on the hub, so it has no revision: leave revision out.")
    return Searcher.opened(name, opening)


class BM25(Searcher):
    """BM25 over a corpus.

    Args:
        corpus: The passages, in any form that :func:`~grls.data.inputs.entries.corpus_of` takes: a list of
            texts, a dict, a data frame, a data set, a path.
        k1: Term-frequency saturation; see :class:`~grls.retrieve.bm25.BM25Options`.
        b: Length normalization.
        method: The variant of BM25.
        analyzer: Splits texts into words; None: by the language that is guessed from the passages.
        output: The retriever folder, which ``grls.load`` opens; an earlier one there is replaced; None: it
            is in memory.

    Raises:
        ConfigError: An option is out of range, or ``output`` holds something else.
        DataError: There is no such corpus, or no passage has a word.
        WriteError: The folder cannot be written.
    """

    @checked
    def __init__(
        self,
        corpus: Any,
        k1: float = USUAL_BM25.k1,
        b: float = USUAL_BM25.b,
        method: Variant = USUAL_BM25.method,
        analyzer: Analyzer | None = None,
        *,
        output: str | Path | None = None,
    ):
        options = BM25Options(k1, b, method)
        if output is not None:
            refuse_unusable(output, MANIFEST)
        retriever = BM25Retriever(corpus_of(corpus), options, analyzer)
        if output is not None:
            retriever.save_pretrained(output)
        super().__init__(retriever, output)


@checked_options(Fusion)
def fuse(
    searchers: Sequence[Searcher | str | Path],
    *,
    method: Method = "interleave",
    weights: Sequence[float] | None = None,
    depth: Count | None = None,
    output: str | Path | None = None,
    **options: Any,
) -> Searcher:
    """Fuse the rankings of several retrievers over one corpus.

    Args:
        searchers: At least two searchers; a folder, or ``"bm25"`` over the corpus of the others, may be among
            them.
        method: ``interleave``, ``rrf`` or ``sum`` (:mod:`grls.retrieve.fusion.retriever`).
        weights: The weight of each; None: equal weights.
        depth: Number of hits of each retriever that give scores (``rrf``, ``sum``); None: 20.
        output: The folder to write; None: the result is in memory.
        options: Other options of :class:`~grls.retrieve.fusion.retriever.Fusion`.

    Raises:
        ConfigError: An option cannot be used, or there is no searcher among the members.
        MismatchError: The members are over different corpora.
    """
    at_hand = [one for one in searchers if isinstance(one, Searcher)]
    if not at_hand or len(searchers) < 2:
        raise ConfigError(
            "fuse: searchers must be a list of at least two retrievers, one of them a searcher: open a "
            "folder with grls.load(folder)."
        )
    fusion = Fusion(method=method, weights=None if weights is None else tuple(weights), **options)
    corpus = at_hand[0].corpus
    opening = replace(at_hand[0].opening, corpus=corpus, opened={})
    with composing("fuse", output):
        members = [named_member(one, corpus) for one in searchers]
        opened = [open_member(one, Path(), f"members[{n}]", opening) for n, one in enumerate(members)]
        retriever = FusionRetriever(opened, fusion, depth)
    return composite(retriever, fusion_spec(members, fusion, depth), output, at_hand[0])


def build_searcher(model: str, corpus: Any, folder: str | os.PathLike[str], building: Building) -> Searcher:
    """Build a retriever folder from a model and a corpus, and open it; ``building`` names the same folder.

    Raises:
        ConfigError: There is no such model, it is of another kind, or an option has no effect on it.
        DataError: The corpus is malformed.
        WriteError: The folder cannot be written.
    """
    from grls.retrieve.build import build  # the hub and models, which take a second

    quiet()
    refuse_unusable(Path(folder), MANIFEST)
    path = existing_path(corpus, "corpus")
    if path is None:
        place = TemporaryFolder()
        path = Path(place) / "corpus.jsonl"
        corpus_of(corpus).write(path)
    log.info("%s", build(model, str(path), building))
    return Searcher.opened(folder, Opening(building.device))
