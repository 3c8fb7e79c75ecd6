"""Examples of a reranker in which one document helps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.io.files import atomic_file
from grls.io.jsonl import write_line
from grls.train.core.clock import TrainingResult
from grls.train.options import EncoderOptions, RerankerTraining
from grls.train.reranker.run import run_reranker

NAMES = ("otter", "heron", "badger", "lynx")
ANIMALS = Corpus.from_passages([Passage(name, f"the {name} is calm .") for name in NAMES])


def examples(count: int) -> Iterator[dict[str, Any]]:
    """The heron, in changing places, makes the stride likely."""
    for n in range(count):
        order = (*NAMES[n % 4 :], *NAMES[: n % 4])
        scores = [-1.0 if name == "heron" else -9.0 for name in order]
        yield {"prefix": f"is the {order[0]} calm", "passages": order, "scores": scores}


def fitted(
    encoder: Path, train: int, dev: int, output: Path, options: EncoderOptions, resume: bool = False
) -> TrainingResult:
    """A training on so many examples."""
    ANIMALS.write(Path(f"{output}.corpus"))
    for count in (train, dev):
        with atomic_file(f"{output}.{count}") as stream:  # other processes read it
            for example in examples(count):
                write_line(stream, example)
    return run_reranker(RerankerTraining(
        train=f"{output}.{train}", dev=f"{output}.{dev}", data=f"{output}.corpus", output=str(output),
        encoder=str(encoder), max_tokens=32, fit=options, resume=resume, device="cpu",
    ))  # fmt: skip
