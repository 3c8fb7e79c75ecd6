"""The fingerprints of the passages of a folder, in its ``grls.json``: no text or metadata changes unseen.

Also what to do where a retriever has other passages than a data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.errors import MismatchError
from grls.io.temporary import is_temporary

CORPUS_FIELDS = ("passages_sha256", "metadata")
"""The fields: the fingerprint of ids, titles and texts, and that of the metadata, which filters depend on."""


def passages_record(corpus: Corpus) -> dict[str, str]:
    """The fields of a corpus."""
    return dict(zip(CORPUS_FIELDS, (corpus.fingerprint, corpus.metadata_fingerprint), strict=True))


def remedy_of_other_corpus(retrieved: Corpus, wanted: Corpus) -> str:
    """What to do where a retriever and a data set have different passages: either may be the newer one.

    Args:
        retrieved: The corpus of the retriever.
        wanted: The corpus of the data set.
    """
    remedy = f"if {wanted.source} is right, make the retriever again with `grls index` over it"
    if not Path(retrieved.source).is_file() or is_temporary(retrieved.source):
        return remedy
    return (
        f"{remedy}; if the retriever is (after `grls index update`), copy its corpus {retrieved.source} to "
        f"{wanted.source}, and take removed passages out of qrels and evidence"
    )


def refuse_other_passages(corpus: Corpus, spec: Mapping[str, Any]) -> None:
    """Refuse another corpus than that of a specification; without the fields, any passes.

    Raises:
        MismatchError: Ids, titles, texts or metadata are others.
    """
    for name, value in passages_record(corpus).items():
        if name in spec and spec[name] != value:
            what = "the metadata have" if name == "metadata" else "an id, title or text has"
            raise MismatchError(
                f"{corpus.source}: {what} changed since the retriever was made; make it again with `grls "
                "index`."
            )
