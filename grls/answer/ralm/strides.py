"""Cuts a text into strides, and says what a language model sees before each (arXiv 2302.00083).

Legend: n tokens of a text, s stride, l query length, w window, D tokens of all documents at most, b tokens
that the tokenizer puts before every text (beginning of sequence).

Stride j holds the tokens ``s j … s (j + 1) - 1``. Its query is the l tokens before it (equation 4 there: q_j
= x[s j - l + 1 .. s j], counted from 1), so its documents do not depend on tokens that are still to be
predicted. Before the stride stand the b tokens, its documents, then as much of the text as fits into the
window: the text is cut at its start by the excess over the window (section 3.1), so a short document leaves
room for more text. The module does not know of models or of retrievers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from grls.errors import ConfigError, at_least
from grls.io.recipes import rare


@dataclass(frozen=True)
class WindowOptions:
    """What a language model sees.

    Args:
        stride: Tokens predicted between two retrievals, s.
        query_tokens: Tokens before a stride that form the query, l.
        documents: Documents put before the text; 0 for no retrieval.
        document_tokens: Most tokens of a document; a longer one is cut at its end.
        window: Most tokens that the model sees, w: documents, text, and the stride itself.
        cut: If the window is full, cut the text before a stride at multiples of this number of tokens. 1 as
            in the paper (section 3.1; ``configs/paper/ralm.yaml``): as much text as fits. With c > 1 a stride
            sees up to c - 1 tokens less, and strides with the same document share its computation.
        bos: Begin every input with the tokens that the tokenizer puts before a text, as ``tokenizer(text)``
            does. They count in the window, and the first token of a text is then predicted as well.

    Raises:
        ConfigError: A number is out of range, or the window cannot hold documents, cut and stride.
    """

    stride: int = 4
    query_tokens: int = rare(32)
    documents: int = 1
    document_tokens: int = rare(256)
    window: int = rare(1024)
    cut: int = rare(64)
    bos: bool = rare(True)

    def __post_init__(self) -> None:
        counts = ("stride", "query_tokens", "document_tokens", "window", "cut")
        at_least(1, **{name: getattr(self, name) for name in counts})
        at_least(0, documents=self.documents)
        self.refuse_small()

    def refuse_small(self, begin: int = 0) -> None:
        """Refuse a window that the longest documents would fill.

        Args:
            begin: Tokens before every input, b.

        Raises:
            ConfigError: The window cannot hold b, D, cut and stride.
        """
        needed = begin + self.documents * self.document_tokens + self.stride + self.cut
        if needed > self.window:
            first = f"{begin} tokens that the tokenizer puts first, " if begin else ""
            raise ConfigError(
                f"a window of {self.window} tokens is too small: {first}{self.documents} documents of "
                f"{self.document_tokens} tokens, a stride of {self.stride} and a cut of {self.cut} take "
                f"{needed}. Lower document_tokens, documents or cut, or take a larger window."
            )

    def start(self, before: int, last: int) -> int:
        """The first token of a text that the model sees if it sees the tokens up to ``last``.

        Args:
            before: Tokens before the text: b and those of the documents.
            last: The token after the last predicted one.
        """
        over = max(0, before + last - self.window)
        return -(-over // self.cut) * self.cut


USUAL_WINDOW = WindowOptions()


class Stride(NamedTuple):
    """A stretch of a text between two retrievals.

    Attributes:
        first: Its first token.
        last: The token after its last.
    """

    first: int
    last: int

    def asks(self, tokens: int) -> slice:
        """The tokens of the text that form its query."""
        return slice(max(0, self.first - tokens), self.first)


def strides(length: int, options: WindowOptions) -> list[Stride]:
    """The strides of a text of ``length`` tokens, in order; the last may be shorter."""
    step = options.stride
    return [Stride(first, min(first + step, length)) for first in range(0, length, step)]
