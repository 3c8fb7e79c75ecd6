"""What is read of a passage that is memorised: front, whole, keywords."""

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from small_data import passages, small_tokenizer, write_small
from train_helpers import logged, train

from grls.data.codec import Codec, Limits
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError
from grls.train.core.examples import Example
from grls.train.stages.examples import MemoriseExamples, PassageInput, drawn_words, word_weights

CORPUS = Corpus.from_passages(passages())
OTTER, LYNX = 0, 6  # the otter is calm, the lynx is calm


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    return Codec(small_tokenizer(write_small(tmp_path_factory.mktemp("sources") / "data")))


def sources(examples: MemoriseExamples, number: int, epochs: int = 60) -> Counter[tuple[int, ...]]:
    return Counter(tuple(examples.draw(number, epoch).source) for epoch in range(epochs))


def row(codec: Codec, number: int) -> list[int]:
    return codec.passages([CORPUS[number]])[0].tolist()


def test_the_whole_passage_is_read_and_written(codec: Codec) -> None:
    example = MemoriseExamples(CORPUS, codec, reading=PassageInput("whole")).draw(OTTER, 3)
    assert example == Example(codec.plain_input(row(codec, OTTER)[:-1]), row(codec, OTTER))


def test_keywords_are_drawn_anew_each_epoch(codec: Codec) -> None:
    """The content words of passage 0 are `otter` and `calm`; one of them, or both in their order."""
    reading = PassageInput("keywords", words=(1, 2))
    examples = MemoriseExamples(CORPUS, codec, reading=reading)
    expected = [tuple(codec.plain_input(codec.texts([text])[0])) for text in ("otter", "calm", "otter calm")]
    found = sources(examples, OTTER)
    assert set(found) == set(expected)
    assert found[expected[0]] > found[expected[1]], "two passages have otters, five are calm"
    assert all(examples.draw(OTTER, e).target == row(codec, OTTER) for e in range(5))
    again, other = (MemoriseExamples(CORPUS, codec, reading=reading, seed=seed) for seed in (0, 1))
    draws = [[some.draw(OTTER, e) for e in range(20)] for some in (examples, again, other)]
    assert draws[0] == draws[1] != draws[2]


def test_words_are_drawn_in_proportion_to_their_weights() -> None:
    passage = Passage("a", "heron pike")
    rng = random.Random(0)
    counts = Counter(drawn_words(passage, {"heron": 3.0, "pike": 1.0}, 1, rng)[0] for _ in range(4000))
    assert counts["heron"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert drawn_words(passage, {"heron": 3.0, "pike": 1.0}, 9, rng) == ["heron", "pike"]


def test_weights_are_idf_and_function_words_have_none() -> None:
    corpus = Corpus.from_passages(
        [Passage("a", "the Mill and a mill", "Mill"), Passage("b", "a mill; a weir")]
    )
    assert word_weights(corpus) == pytest.approx({"mill": math.log(3 / 2), "weir": math.log(3)})
    assert drawn_words(corpus[0], word_weights(corpus), 9, random.Random(0)) == ["Mill"]


def test_what_has_no_keyword_is_read_by_its_front(codec: Codec) -> None:
    corpus = Corpus.from_passages([Passage("a", "is it the if ."), Passage("b", "otter")])
    words = MemoriseExamples(corpus, codec, reading=PassageInput("keywords"))
    assert words.draw(0, 0) == MemoriseExamples(corpus, codec).draw(0, 0)


def test_of_several_readings_each_epoch_draws_one(codec: Codec) -> None:
    reading = PassageInput(["whole", "front"])
    found = sources(MemoriseExamples(CORPUS, codec, reading=reading), OTTER)
    fronts = MemoriseExamples(CORPUS, codec).draw(OTTER, 0).source
    assert set(found) == {tuple(codec.plain_input(row(codec, OTTER)[:-1])), tuple(fronts)}
    assert min(found.values()) > 15


def test_it_may_be_read_as_a_query_and_is_cut_to_a_querys_length(codec: Codec) -> None:
    reading = PassageInput("whole", query=True)
    tokens = row(codec, OTTER)[:-1]
    assert MemoriseExamples(CORPUS, codec, reading=reading).draw(OTTER, 0).source == codec.model_input(tokens)
    for limits in (Limits(64, 3, 64), Limits(64, 64, 5)):
        short = Codec(codec.tokenizer, limits)
        assert MemoriseExamples(CORPUS, short, reading=reading).draw(OTTER, 0).source == codec.model_input(
            tokens[:3]
        )


def test_what_cannot_be_read_is_refused(codec: Codec) -> None:
    def refused(kind: type[Exception], match: str, **how: Any) -> None:
        target = how.pop("target", "whole")
        with pytest.raises(kind, match=match):
            MemoriseExamples(CORPUS, codec, target=target, reading=PassageInput(**how))

    refused(ConfigError, r"expected reads to be of front, .* got \['back'\]", reads="back")
    refused(ConfigError, r"got \[\]", reads=[])
    refused(ConfigError, "1 <= fewest <= most words", reads="keywords", words=(3, 2))
    refused(ConfigError, "target `rest` is the passage without its front", reads="whole", target="rest")


def test_a_stage_memorises_from_keywords(tmp_path: Path) -> None:
    data = write_small(tmp_path / "data")
    reading = ["--data.reading.reads=[keywords,whole]"]
    short = ["--data.reading.query=true", "--trainer.max_epochs=1"]
    assert logged(train("memorise", data, tmp_path / "run", *reading, *short), "dev_recall")
