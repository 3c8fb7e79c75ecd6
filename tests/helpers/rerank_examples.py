"""Examples of a reranker in which one document helps."""

import json
from pathlib import Path

from grls.answer.ralm.reranker import RerankExample
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.train.core.clock import TrainingResult
from grls.train.options import EncoderOptions, RerankerTraining
from grls.train.reranker.run import run_reranker

NAMES = ("otter", "heron", "badger", "lynx")
ANIMALS = Corpus.from_passages([Passage(name, f"the {name} is calm .") for name in NAMES])


def examples(count: int = 12) -> list[RerankExample]:
    """The heron, in changing places, makes the stride likely."""
    orders = [(*NAMES[n % 4 :], *NAMES[: n % 4]) for n in range(count)]
    scores = [tuple(-1.0 if name == "heron" else -9.0 for name in order) for order in orders]
    return [RerankExample(f"is the {NAMES[n % 4]} calm", orders[n], scores[n]) for n in range(count)]


def fitted(
    encoder: Path, train: int, dev: int, output: Path, options: EncoderOptions, resume: bool = False
) -> TrainingResult:
    """A training on so many examples."""
    ANIMALS.write(Path(f"{output}.corpus"))
    for count in (train, dev):
        lines = (f"{json.dumps(example._asdict())}\n" for example in examples(count))
        Path(f"{output}.{count}").write_text("".join(lines))
    return run_reranker(RerankerTraining(
        train=f"{output}.{train}", dev=f"{output}.{dev}", data=f"{output}.corpus", output=str(output),
        encoder=str(encoder), max_tokens=32, fit=options, resume=resume, device="cpu",
    ))  # fmt: skip
