"""``grls identify``: identifiers of a corpus, for a generator to write in place of whole passages."""

from __future__ import annotations

from typing import Any

from grls.io.files import refuse_unusable
from grls.io.progress import counted

_EXAMPLES = 3


def identify_command(kind: str, *, corpus: str, output: str, options: dict[str, Any] | None = None) -> None:
    """Make the identifiers of a corpus, which a generator learns to write in place of whole passages.

    Train with ``--data.identifiers OUTPUT``; ``grls index`` of the trained model uses them, too.

    Args:
        kind: ``field``: the title, or another field; ``keywords``: the rarest words; ``queries``:
            pseudo-queries; ``codes``: tokens made of the vector of a bi-encoder; ``union``: several of these;
            ``spans``: words of the passage from any word on; or one that is registered.
        corpus: ``corpus.jsonl`` or the data set folder that holds it.
        output: The folder of identifiers; an earlier one there is replaced.
        options: Those of the kind: ``--options.field`` (field), ``--options.words`` (keywords, spans),
            ``--options.file`` (queries), ``--options.encoder``, ``method``, ``levels``, ``size`` and ``leaf``
            (codes), ``--options.of`` (union).
    """
    from grls.data.corpus import Corpus
    from grls.data.identifiers import IDENTIFIERS, identifier_kind, make_identifiers

    refuse_unusable(output, IDENTIFIERS)
    made = make_identifiers(identifier_kind(kind, options or {}), Corpus.read(corpus), output)
    rows = len(made.kind.vocabulary)
    new = f", {rows:,} rows of the vocabulary" if rows else ""
    print(f"{output}: {counted(len(made.corpus), 'passage')}, {counted(len(made), 'identifier')}{new}")
    for one in made.listed(range(min(_EXAMPLES, len(made)))):
        print(f"  {one if isinstance(one, str) else ' '.join(one)}")
