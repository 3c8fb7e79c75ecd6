"""How a text is cut into strides, and what a language model sees before each (arXiv 2302.00083).

Legend: n tokens of a text, s stride, l query length, w window, D tokens of all documents at most.

Stride j holds the tokens ``s j … s (j + 1) - 1``. What is retrieved for it is asked by the l tokens before it
(equation 4 there: q_j = x[s j - l + 1 .. s j], counted from 1), so its documents depend on nothing that is
still to be predicted. Before it stand its documents, then as much of the text as the window leaves. Nothing
here knows of models or of retrievers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from grls.errors import ConfigError


@dataclass(frozen=True)
class WindowOptions:
    """What a language model sees.

    Args:
        stride: Tokens predicted before it is retrieved anew, s.
        query_tokens: Tokens before a stride that are the query, l.
        documents: Documents put before the text; 0 retrieves nothing.
        document_tokens: Tokens of a document at most; what is longer is cut at its end.
        window: Tokens that the model sees at most, w: documents, text, and the stride itself.
        cut: The text before a stride is cut from its start, where the window is full, at multiples of so many
            tokens. 1 is the paper's: as much text as fits. With c > 1 a stride sees up to c - 1 tokens
            less, and strides with the same document share its computation.

    Raises:
        ConfigError: A number is out of range, or the window cannot hold documents, cut and stride.
    """

    stride: int = 4
    query_tokens: int = 32
    documents: int = 1
    document_tokens: int = 256
    window: int = 1024
    cut: int = 64

    def __post_init__(self) -> None:
        for name in ("stride", "query_tokens", "document_tokens", "window", "cut"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.documents < 0:
            raise ConfigError(f"documents must be at least 0, got {self.documents}.")
        needed = self.reserved + self.stride + self.cut
        if needed > self.window:
            raise ConfigError(
                f"a window of {self.window} tokens is too small: {self.documents} documents of "
                f"{self.document_tokens} tokens, a stride of {self.stride} and a cut of {self.cut} take "
                f"{needed}. Lower document_tokens, documents or cut, or take a larger window."
            )

    @property
    def reserved(self) -> int:
        """Tokens kept for documents, D."""
        return self.documents * self.document_tokens


class Stride(NamedTuple):
    """A stretch of a text that is predicted at a time.

    Attributes:
        first: Its first token.
        last: The token after its last.
        start: The first token of the text that the model sees before it.
    """

    first: int
    last: int
    start: int

    def asks(self, tokens: int) -> slice:
        """Which tokens of the text are its query."""
        return slice(max(0, self.first - tokens), self.first)


def strides(length: int, options: WindowOptions) -> list[Stride]:
    """The strides of a text of ``length`` tokens, in order; the last may be shorter."""
    found = []
    room = options.window - options.reserved
    for first in range(0, length, options.stride):
        over = max(0, first + options.stride - room)
        start = -(-over // options.cut) * options.cut
        found.append(Stride(first, min(first + options.stride, length), start))
    return found
