"""What the parts of a training refuse: the call, and what its error says. Options are in test_refusals."""

from types import SimpleNamespace

import pytest
from failing import raises
from small_data import passages
from train_helpers import opened_chains

from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Query
from grls.errors import GrlsError
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.bm25 import BM25Retriever
from grls.train.biencoder.examples import BiEncoderExamples, PairOptions
from grls.train.biencoder.run import run_biencoder
from grls.train.generator.data import RetrieverTeacher
from grls.train.generator.rescoring import Proposals
from grls.train.options import (
    BiEncoderOptions,
    BiEncoderTraining,
    MemoriseDataOptions,
    PassageInput,
    RerankHopOptions,
    Rescore,
)
from grls.train.reranker.module import RerankHops

FEW = Corpus.from_passages(passages()[:4], "other")


@pytest.fixture(scope="module")
def t(root, tmp_path_factory):
    place = tmp_path_factory.mktemp("refused")
    BM25Retriever(FEW).save_pretrained(place / "other")
    data, _ = opened_chains(root)
    texts = BiEncoderModel.load(str(root / "bert"), device="cpu").query_text
    return SimpleNamespace(root=root, place=place, dense=str(root / "dense"), chains=data, texts=texts)


def pairs(t, queries, qrels):
    return BiEncoderExamples(queries, qrels, t.chains.corpus, t.texts, PairOptions())


def biencoder(t, more=None, **options):
    fit = BiEncoderOptions(epochs=1, device="cpu", **(more or {}))
    data, source = str(t.root / "data"), str(t.root / "bert")
    return run_biencoder(
        BiEncoderTraining(data=data, source=source, output=str(t.place / "bi"), fit=fit, **options)
    )


def negatives(t, *asked, **options):
    queries, qrels = asked or read_split(t.root / "data", "train", t.chains.corpus)
    return RerankHops(queries, qrels, t.chains.corpus, RerankHopOptions(hard_negatives=3, **options))


REFUSED = [
    # bi-encoders
    (lambda t: pairs(t, [], {}), "holds no query"),
    (lambda t: pairs(t, [Query("q", "?")], {"q": {"r0": 0}}), "neither evidence nor a qrel above zero"),
    (lambda t: pairs(t, [Query("q", "?", ("none",))], {}), "gold passage 'none' of query 'q' is not in"),
    (
        lambda t: biencoder(t, {"matryoshka": (4, 9999)}, dev_split=None),
        r"fit\.matryoshka: the embeddings have \d+ dimensions, got 9999",
    ),
    # rerankers
    (
        lambda t: negatives(t, [Query("q", "zzz", ("r0",))], {"q": {"r0": 1}}),
        "finds no hard negatives: name another retriever by",
    ),
    (
        lambda t: negatives(t, negatives=str(t.place / "other")),
        "the retriever .* over another corpus .*`grls index`",
    ),
    # chains
    (lambda t: RetrieverTeacher(t.dense, FEW), "another corpus"),
    (lambda t: Proposals(Rescore([t.dense]), FEW, t.chains.codec, "cpu"), "make the retriever again with"),
    # passages that are memorised, and pseudo-queries
    (
        lambda t: MemoriseDataOptions(data="d", target="rest", reading=PassageInput("whole")),
        "target `rest` is the passage without its front",
    ),
]


@pytest.mark.parametrize(("call", "says"), REFUSED)
def test_it_is_refused(call, says, t):
    raises(GrlsError, says, call, t)
