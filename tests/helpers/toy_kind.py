"""A kind of retriever that the package does not have: a passage scores how many words it shares."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from grls.data.corpus import Corpus, corpus_file
from grls.data.filters import Allow, Numbers
from grls.data.types import Hit, Passage, Query
from grls.io.files import atomic_folder, write_json
from grls.models.base import Floats
from grls.retrieve.base import AllScores, Description
from grls.retrieve.build import Building
from grls.retrieve.queries import queries_of, reachable, with_evidence_text
from grls.retrieve.registry import Opening
from grls.retrieve.spec import MANIFEST
from grls.tune.step import Step, TuneChoice, Tuning

TARGET = "toy_kind:ToyRetriever"


class ToyRetriever:
    kind = "toy"
    temperature = 1.0
    scores_done = False
    least_score = 0.0
    tuned_by = ("toy_kind:POWER",)

    def __init__(self, corpus: Corpus, power: float = 1.0):
        self.corpus = corpus
        self.power = power
        self.words = [set(passage.text.split()) for passage in corpus]

    @classmethod
    def build(cls, model: str, corpus: str, how: Building) -> str:
        passages = Corpus.read(corpus)
        with atomic_folder(how.output, MANIFEST) as new:
            passages.write(corpus_file(new))
            write_json(new / MANIFEST, {"kind": "toy"})
        return f"{how.output}: {len(passages)} passages by {model}"

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Self:
        return cls(Corpus.read(folder), spec.get("power", 1.0))

    def describe(self) -> Description:
        return Description("toy", "words shared")

    def fingerprint(self) -> str:
        return f"toy {self.corpus.fingerprint}"

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        asked = queries_of(queries)
        within = reachable(asked, allow, self.corpus)
        found = []
        for number, scores in enumerate(self.scores(asked)(np.arange(len(asked)))):
            numbers = within[number]
            some = np.arange(len(scores)) if numbers is None else numbers
            best = some[np.argsort(-scores[some], kind="stable")]
            best = best[scores[best] > 0][:k]
            ids = self.corpus.ids(best.tolist())
            found.append([Hit(*one) for one in zip(ids, scores[best].tolist(), strict=True)])
        return found

    def scores(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]] = ()) -> AllScores:
        texts = [
            with_evidence_text(*one) for one in zip(queries, evidence or [()] * len(queries), strict=True)
        ]

        def scores(numbers: Numbers) -> Floats:
            asked = [set(texts[number].split()) for number in numbers.tolist()]
            shared = [[float(len(words & some)) for some in self.words] for words in asked]
            return np.array(shared) * self.power

        return scores


def tune_power(tuning: Tuning) -> TuneChoice:
    """A negative power finds nothing, so the other one is chosen."""
    recalls = {}
    for power in (-1.0, 2.0):
        tuning.spec = {**tuning.spec, "power": power}
        ids = [[hit.id for hit in hits] for hits in tuning.open().retrieve(tuning.dev.queries, 2)]
        recalls[power] = tuning.dev.quality(ids, 2).recall
    best = max(recalls, key=lambda power: recalls[power])
    return TuneChoice({"power": best}, "recall@2", recalls[-1.0], recalls[best], f"power {best:g}")


POWER = Step("power", tune_power)
