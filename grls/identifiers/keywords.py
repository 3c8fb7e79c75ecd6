"""The rarest words of a passage as its identifier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from grls.data.corpus import Corpus
from grls.data.identifiers import Identifier, IdentifierKind
from grls.data.types import Passage
from grls.data.words import Analyzer
from grls.io.arguments import Count, options


@options("options")
class Keywords(IdentifierKind):
    """The words of a passage that fewest passages hold, the rarest first.

    They are counted in the corpus that the identifiers were made of, also for passages that are added. Of
    equally rare words, the first of the passage comes first. A passage without a content word is identified
    by its text.

    Args:
        words: Number of words.
    """

    words: Count = 6

    def learn(self, corpus: Corpus) -> None:
        language = Analyzer.guessed(corpus).language
        content = Analyzer(language).content
        held = Counter(word for passage in corpus for word in content(_text(passage)))
        self.state.update(language=language, held=dict(held))

    def identify(self, corpus: Corpus) -> Iterator[Sequence[Identifier]]:
        content, held = Analyzer(self.state["language"]).content, self.state["held"]
        for passage in corpus:
            words = content(_text(passage))
            rarest = sorted(words, key=lambda word: held.get(word, 0))[: self.words]
            yield [" ".join(words[word] for word in rarest) or _text(passage)]


def _text(passage: Passage) -> str:
    return f"{passage.title} {passage.text}".strip()
