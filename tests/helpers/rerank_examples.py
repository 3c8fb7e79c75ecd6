"""Examples of a reranker in which one document helps."""

from pathlib import Path

from grls.answer.ralm.reranker import Reranker, RerankExample
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.train.core.clock import TrainingResult
from grls.train.core.datamodule import EncoderData
from grls.train.core.engine import begin
from grls.train.options import EncoderOptions
from grls.train.reranker.module import WrittenExamples
from grls.train.reranker.run import fit_reranker

NAMES = ("otter", "heron", "badger", "lynx")
ANIMALS = Corpus.from_passages([Passage(name, f"the {name} is calm .") for name in NAMES])


def examples(count: int = 12) -> list[RerankExample]:
    """The heron, in changing places, makes the stride likely."""
    orders = [(*NAMES[n % 4 :], *NAMES[: n % 4]) for n in range(count)]
    texts = [tuple(f"the {name} is calm ." for name in order) for order in orders]
    scores = [tuple(-1.0 if name == "heron" else -9.0 for name in order) for order in orders]
    return [RerankExample(f"is the {NAMES[n % 4]} calm", texts[n], scores[n]) for n in range(count)]


def fitted(
    reranker: Reranker, train: int, dev: int, output: Path, options: EncoderOptions, resume: bool = False
) -> TrainingResult:
    """A training on so many examples."""
    data = EncoderData("data", options)
    data.train_examples, data.dev_examples = (WrittenExamples(examples(n)) for n in (train, dev))
    resumed = begin({}, output, resume, options.strategy)
    return fit_reranker(reranker, data, options, output, {}, resumed)
