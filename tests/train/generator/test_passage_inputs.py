"""What is read of a passage that is memorised: its front, or all of it."""

from pathlib import Path

import pytest
from small_data import passages, small_tokenizer, write_small
from train_helpers import AsPairs, logged, train

from grls.data.codec import Codec, Limits
from grls.data.corpus import Corpus
from grls.train.core.examples import Example
from grls.train.generator.examples import MemoriseExamples
from grls.train.options import PassageInput

CORPUS = Corpus.from_passages(passages())
OTTER, LYNX = 0, 6  # the otter is calm, the lynx is calm


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    return Codec(small_tokenizer(write_small(tmp_path_factory.mktemp("sources") / "data")))


def row(codec: Codec, number: int) -> list[int]:
    return codec.passages([CORPUS[number]])[0].tolist()


def test_the_whole_passage_is_read_and_written(codec: Codec) -> None:
    examples = MemoriseExamples(CORPUS, codec, reading=PassageInput("whole"))
    assert AsPairs(examples, CORPUS).draw(OTTER, 3) == Example(
        codec.plain_input(row(codec, OTTER)[:-1]), row(codec, OTTER)
    )


def test_it_may_be_read_as_a_query_and_is_cut_to_a_querys_length(codec: Codec) -> None:
    reading = PassageInput("whole", query=True)
    tokens = row(codec, OTTER)[:-1]
    (hop,) = MemoriseExamples(CORPUS, codec, reading=reading).draw(OTTER, 0)
    assert hop.source == codec.model_input(tokens)
    for limits in (Limits(64, 3, 64), Limits(64, 64, 5)):
        short = Codec(codec.tokenizer, limits)
        (hop,) = MemoriseExamples(CORPUS, short, reading=reading).draw(OTTER, 0)
        assert hop.source == codec.model_input(tokens[:3])


def test_a_stage_memorises_from_the_whole_passage(tmp_path: Path) -> None:
    data = write_small(tmp_path / "data")
    reading = ["--data.reading.reads=whole", "--data.reading.query=true", "--trainer.max_epochs=1"]
    assert logged(train("memorise", data, tmp_path / "run", *reading), "dev_recall")
