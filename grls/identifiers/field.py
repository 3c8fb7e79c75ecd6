"""The title of a passage, or a field of its metadata, as its identifier (GENRE, arXiv 2010.00904)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grls.data.corpus import Corpus
from grls.data.identifiers import Identifier, IdentifierKind
from grls.errors import DataError
from grls.io.arguments import options


@options("options")
class Field(IdentifierKind):
    """A field of a passage.

    Args:
        field: ``title``, or a field of the metadata: a text, a number, or a list of them, each an identifier.
    """

    field: str = "title"

    def identify(self, corpus: Corpus) -> Iterator[Sequence[Identifier]]:
        for passage, metadata in zip(corpus, corpus.metadata(), strict=True):
            value = passage.title if self.field == "title" else metadata.get(self.field)
            values = value if isinstance(value, list) else [value]
            texts = [str(one).strip() for one in values if isinstance(one, str | int | float)]
            if not texts or not all(texts) or len(texts) < len(values):
                raise DataError(
                    f"the passage {passage.id!r} has no {self.field}, which is to identify it: give it a "
                    "text, a number or a list of these, or choose another field or kind of identifiers.",
                    corpus.source,
                )
            yield [*dict.fromkeys(texts)]
