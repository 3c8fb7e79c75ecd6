"""What dev recall is measured on: all passages or a sample, the query alone or every hop."""

from pathlib import Path

import pytest
from biencoder_helpers import made_place

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.errors import ConfigError
from grls.models.biencoder import BiEncoderModel
from grls.train.biencoder.dev import Split, dev_evaluator
from grls.train.biencoder.options import BiEncoderOptions


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_place(tmp_path_factory.mktemp("dev"))


def opened(place: Path) -> tuple[BiEncoderModel, Split]:
    corpus = Corpus.read(place / "data")
    return BiEncoderModel.load(str(place / "bert"), device="cpu"), Split(
        *read_split(place / "data", "train", corpus), corpus
    )


def test_every_hop_asks_for_the_gold_that_is_left(place: Path) -> None:
    encoder, dev = opened(place)
    query = next(query for query in dev.queries if len(gold_passages(query, dev.qrels)) > 1)
    gold = gold_passages(query, dev.qrels)
    made = dev_evaluator(encoder, dev, BiEncoderOptions(by_hop=True), True)
    asked = dict(zip(made.queries_ids, made.queries, strict=True))
    assert asked[f"{query.id} 0"] == query.text
    (first,) = dev.corpus.passages([n for n in dev.corpus.numbers(gold[:1]) if n is not None])
    assert asked[f"{query.id} 1"] == encoder.query_text(query.text, [first])
    assert made.relevant_docs[f"{query.id} 1"] == set(gold[1:])
    assert len(asked) == sum(len(gold_passages(query, dev.qrels)) for query in dev.queries)


def test_without_hops_in_training_the_query_alone_is_asked(place: Path) -> None:
    encoder, dev = opened(place)
    made = dev_evaluator(encoder, dev, BiEncoderOptions(by_hop=True), False)
    assert made.queries == [query.text for query in dev.queries]


def test_a_sample_holds_the_gold_passages(place: Path) -> None:
    encoder, dev = opened(place)
    gold = {name for query in dev.queries[:2] for name in gold_passages(query, dev.qrels)}
    most = len(gold) + 3
    assert most < len(dev.corpus)
    made = dev_evaluator(encoder, dev, BiEncoderOptions(dev_size=2, dev_passages=most), True)
    assert gold <= set(made.corpus_ids)
    assert len(gold) <= len(made.corpus_ids) <= most
    whole = dev_evaluator(encoder, dev, BiEncoderOptions(), True)
    assert len(whole.corpus_ids) == len(dev.corpus)
    with pytest.raises(ConfigError, match="dev_passages"):
        BiEncoderOptions(dev_passages=0)
