"""The target of a hop: a distribution over passages or identifiers, and the paths on which it is learned.

Where any order of the gold passages is right, all remaining ones are equally right; which of them becomes
evidence is drawn anew each epoch. A teacher may have a share in the target of a hop, but not in a hop whose
gold is DONE.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grls.data.evidence import excerpt
from grls.data.identifiers import Identifiers
from grls.data.words import pieces, stem_key
from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats
from grls.train.generator.decisions import PassageTarget, Path
from grls.train.generator.examples import HopExample

Teacher = Callable[[Sequence[HopExample]], list[Mapping[int, float]]]
"""Gives for each hop weights of passages by number; empty: no opinion."""


@dataclass(eq=False)
class Teaching:
    """Makes the targets and paths of hops.

    Args:
        done: The number of DONE.
        teacher: The teacher; None: only gold passages are learned. ``share`` is its share of a target.
        branches: Number of paths drawn from the teacher's opinion, beside the path of the gold passage.
        spans: Targets over the identifiers of passages, where a passage has several.
        drawn: Number of spans of gold passages drawn for each hop.
    """

    index: ConstraintIndex
    done: int
    teacher: Teacher | None = None
    share: float = 0.0
    branches: int = 0
    spans: SpanTargets | None = None
    drawn: int = 1

    def __call__(self, hops: Sequence[HopExample]) -> tuple[list[PassageTarget], list[Path]]:
        """The target of each hop, and the paths on which it is learned."""
        opinions = self._opinions(hops)
        targets, paths = [], []
        for n, (hop, opinion) in enumerate(zip(hops, opinions, strict=True)):
            share = self.share if opinion else 0.0
            weights = {passage: (1 - share) / len(hop.gold) for passage in hop.gold}
            for passage, value in opinion.items():
                weights[passage] = weights.get(passage, 0.0) + share * value
            weights = {passage: value for passage, value in weights.items() if value > 0}
            if self.spans is None:
                weighed = np.array(list(weights)), np.array(list(weights.values()))
            else:
                weighed = self.spans.spread(hop.query, weights, hop.evidence)
            targets.append(PassageTarget.of(self.index, *weighed))
            paths += self._paths(n, hop, opinion, share)
        return targets, paths

    def text(self, passage: int) -> int:
        """A number that passages of equal text share; over spans, the passage's own number."""
        return passage if self.spans is not None else int(self.index.rows.row_of[passage])

    def sequences(self, hop: HopExample, passage: int) -> list[int]:
        """What is scored of a candidate: itself, or the ``drawn`` spans of it that fit the query best."""
        if self.spans is None:
            return [passage]
        spans, masses = self.spans.spread(hop.query, {passage: 1.0}, hop.evidence)
        best: list[int] = spans[np.argsort(-masses, kind="stable")[: self.drawn]].tolist()
        return best

    def _opinions(self, hops: Sequence[HopExample]) -> list[Mapping[int, float]]:
        """The teacher's weights without evidence, the query itself and copies, normalised to sum to one."""
        opinions: list[Mapping[int, float]] = [{} for _ in hops]
        if self.teacher is not None:
            numbers = [n for n, hop in enumerate(hops) if hop.gold != (self.done,) and hop.query]
            for n, opinion in zip(numbers, self.teacher([hops[n] for n in numbers]), strict=True):
                taken = {self.text(passage) for passage in (*hops[n].evidence, *hops[n].own)}
                remaining = {
                    passage: value for passage, value in opinion.items() if self.text(passage) not in taken
                }
                total = sum(remaining.values())
                if total > 0:
                    opinions[n] = {passage: value / total for passage, value in remaining.items()}
        return opinions

    def _paths(self, n: int, hop: HopExample, opinion: Mapping[int, float], share: float) -> list[Path]:
        """Paths of a hop: the taken gold passage and draws from the teacher's opinion, or spans of these.

        The weights correct for the draws; without branches, the gold path has all the weight.
        """
        drawn = self.branches if opinion else 0
        rng = random.Random(hop.seed)
        gold = 1 - share if drawn else 1.0
        if self.spans is None:
            paths = [Path(n, hop.taken, gold)]
        else:
            spans = self._spans(rng, hop, dict.fromkeys(hop.gold, 1.0), self.drawn)
            paths = [Path(n, span, gold / self.drawn) for span in spans]
        if drawn:
            if self.spans is None:
                chosen = rng.choices(list(opinion), list(opinion.values()), k=drawn)
            else:
                chosen = self._spans(rng, hop, opinion, drawn)
            paths += [Path(n, passage, share / drawn) for passage in chosen]
        return paths

    def _spans(
        self, rng: random.Random, hop: HopExample, weights: Mapping[int, float], count: int
    ) -> list[int]:
        assert self.spans is not None
        spans, masses = self.spans.spread(hop.query, weights, hop.evidence)
        return rng.choices(spans.tolist(), masses.tolist(), k=count)


_SHARES = (1.0, 0.6, 0.6, 0.6)
"""Weights of the first words of a span."""


class SpanTargets:
    """From distributions over passages to distributions over their spans, or identifiers of other kinds.

    Legend: N passages, V spans, n spans of a target.

    Every span of a right passage is right, but a span without any word of the query teaches little. Let
    g(w) = log((N + 1) / (n_w + 1)) for a word w of the query that is in n_w passages, and 0 for other
    words. A span v of the words w_0, w_1, … has the probability

        q(v | passage, query) proportional to exp(g(w_0) + 0.6 (g(w_1) + g(w_2) + g(w_3)))

    (arXiv 2204.10628, section 3.1, samples n-grams by their overlap with the query).
    A code has no words, so all codes of a passage have one probability.
    Words are compared by their first six letters, ignoring case. Words of the evidence passages count as
    words of the query, ``evidence_words`` of each (:func:`grls.data.evidence.excerpt`; 0: all).
    """

    def __init__(self, spans: Identifiers, evidence_words: int = 0):
        self.spans = spans
        self.evidence_words = evidence_words
        self._stems: dict[str, int] = {"": 0}
        known: dict[str, int] = {}  # word as it is written -> its stem

        def stem(word: str) -> int:
            if word not in known:
                known[word] = self._stems.setdefault(stem_key(word), len(self._stems))
            return known[word]

        texts = (f"{passage.title} {passage.text}" for passage in spans.corpus)
        holders = Counter(one for text in texts for one in set(map(stem, pieces(text))))
        rows, count = array("i"), len(_SHARES)
        for one in (one for several in spans.kind.identify(spans.corpus) for one in several):
            words = one.split(None, count)[:count] if isinstance(one, str) else []
            if isinstance(one, str) and not one.isascii():
                words = pieces(" ".join(words))[:count]
            rows.extend([*map(stem, words), *[0] * (count - len(words))])
        rows.extend([0] * count)
        self._words = np.frombuffer(rows, dtype=np.int32).reshape(-1, len(_SHARES))
        """``[V + 1, 4]`` the stems of each span's first words, 0: none; DONE has none."""
        held = np.array([holders[n] for n in range(len(self._stems))])
        self._worth: Floats = np.log((len(spans.corpus) + 1) / (held + 1))

    def spread(
        self, query: str, weights: Mapping[int, float], evidence: Sequence[int] = ()
    ) -> tuple[Ints, Floats]:
        """Spread weights of passages (by number; N is DONE) over their spans.

        Words of the evidence count as words of the query, since often only the evidence names the subject
        of the next passage. Returns ``[n]`` spans and ``[n]`` weights; the spans of a passage sum to its
        weight.
        """
        passages = np.array(list(weights), dtype=np.int64)
        spans = self.spans.of(passages)
        scores = self._common(query, evidence, spans)
        counts = np.diff(np.append(np.flatnonzero(np.diff(self.spans.owners[spans], prepend=-1)), len(spans)))
        starts = np.cumsum(counts) - counts
        masses = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), counts))
        masses /= np.repeat(np.add.reduceat(masses, starts), counts)
        return spans, masses * np.repeat(list(weights.values()), counts)

    def _common(self, query: str, evidence: Sequence[int], spans: Ints) -> Floats:
        """``[n]`` overlap of the first words of spans with query and evidence (nats)."""
        worth = np.zeros(len(self._stems))
        stems = [self._stems[stem] for stem in map(stem_key, pieces(query)) if stem and stem in self._stems]
        worth[stems] = self._worth[stems]
        for passage in self.spans.corpus.passages(evidence) if evidence else ():
            read = excerpt(query, passage, self.evidence_words)
            words = pieces(f"{read.title} {read.text}")
            held = [self._stems[stem] for stem in map(stem_key, words) if stem in self._stems]
            worth[held] = self._worth[held]
        worth[0] = 0.0
        overlap: Floats = worth[self._words[spans]] @ np.array(_SHARES)
        return overlap
