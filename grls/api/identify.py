"""``grls.identify``: identifiers of a corpus, for a generator to write in place of whole passages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grls.data.identifiers import Identifiers, identifier_kind, make_identifiers
from grls.data.inputs.entries import corpus_of
from grls.io.arguments import checked


@checked
def identify(corpus: Any, kind: str, output: str | Path, **options: Any) -> Identifiers:
    """Make the identifiers of a corpus, and a folder of them for ``Generator.fit``.

    Args:
        corpus: The passages (:func:`~grls.data.inputs.entries.corpus_of`).
        kind: ``field``, ``keywords``, ``queries``, ``codes``, ``union``, ``spans``, or a registered one.
        output: The folder; an earlier one there is replaced.
        options: Those of the kind, such as ``encoder`` of :class:`~grls.identifiers.codes.Codes`.

    Returns:
        The identifiers: ``identifiers.listed([0])`` is the first one.

    Raises:
        ConfigError: The kind or an option is unknown, or does not fit the corpus.
        DataError: A passage has no identifier.
        WriteError: The folder cannot be written.
    """
    return make_identifiers(identifier_kind(kind, options), corpus_of(corpus), output)
