"""What dev recall is measured on: all passages or a sample, the query alone or every hop."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.errors import ConfigError
from grls.models.biencoder import BiEncoderModel
from grls.train.biencoder.dev import HopEvaluator, Split, dev_evaluator
from grls.train.options import BiEncoderOptions


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
    assert made.evidence[f"{query.id} 1"] == {gold[0]}
    assert made.evidence[f"{query.id} 0"] == set()
    assert len(asked) == sum(len(gold_passages(query, dev.qrels)) for query in dev.queries)


class Told:
    """Embeds a text as the numbers that it is."""

    def encode_query(self, texts: Sequence[str], **_: Any) -> torch.Tensor:
        return torch.tensor([[float(number) for number in text.split()] for text in texts])

    encode_document = encode_query


@pytest.mark.parametrize("chunk", [50_000, 2, 1])
def test_a_hop_does_not_find_its_evidence_again(chunk: int) -> None:
    """As in the search: after a, the first one is b; c and a are evidence of the last hop."""
    evidence: dict[str, set[str]] = {"q 0": set(), "q 1": {"a"}, "q 2": {"a", "c"}}
    made = HopEvaluator(
        lambda queries, passages: queries @ passages.T,
        evidence,
        queries=dict.fromkeys(evidence, "1 0"),
        corpus={"a": "4 0", "b": "3 0", "c": "2 0", "d": "1 0"},
        relevant_docs={"q 0": {"b"}, "q 1": {"b"}, "q 2": {"d"}},
        mrr_at_k=[4], ndcg_at_k=[4], accuracy_at_k=[1], precision_recall_at_k=[1, 2], map_at_k=[4],
        corpus_chunk_size=chunk,
    )  # fmt: skip
    for _ in range(2):  # epoch after epoch
        measures = made.compute_all_metrics(Told())["dot"]
        assert measures["recall@k"] == {1: pytest.approx(1 / 3), 2: 1.0}
        assert measures["mrr@k"] == {4: pytest.approx((1 / 2 + 1 + 1 / 2) / 3)}


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
