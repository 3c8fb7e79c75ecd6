"""Pairs of a bi-encoder: which passage is right, which are wrong, and which must not count as wrong."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from composite_specs import create
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import dot_score
from small_data import queries, tiny_bert, write_small
from torch.nn import functional as F

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, read_split
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.models.biencoder import DONE_TEXT, BiEncoderModel
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.train.biencoder.examples import NO_KEY, BiEncoderExamples, Miner, Pair, PairOptions, RetrieverMiner
from grls.train.biencoder.loss import MaskedRankingLoss, false_negatives

TWO_HOPS = next(q for q in queries() if q.id == "q-otter-kind")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("pairs") / "data")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> BiEncoderModel:
    return BiEncoderModel.load(str(tiny_bert(tmp_path_factory.mktemp("pairs") / "bert")), device="cpu")


def examples(
    data: Path, encoder: BiEncoderModel, rankings: list[list[str]] | None = None, **options: object
) -> BiEncoderExamples:
    """The pairs of one query with two gold passages."""
    corpus = Corpus.read(data)
    qrels: Qrels = {TWO_HOPS.id: dict.fromkeys(TWO_HOPS.evidence, 1)}
    chosen = PairOptions(**options)  # type: ignore[arg-type]
    return BiEncoderExamples([TWO_HOPS], qrels, corpus, encoder.query_text, chosen, ranks(rankings or []))


def ranks(rankings: Sequence[Sequence[str]]) -> Miner:
    """A miner that finds the same for every query and hop: the rankings in turn, the last one again."""

    def miner(queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int) -> list[list[str]]:
        return [
            list(rankings[min(n, len(rankings) - 1)])[:k] if rankings else [] for n in range(len(queries))
        ]

    return miner


def texts(made: BiEncoderExamples, epoch: int = 0) -> list[tuple[str, str]]:
    pairs = [made.draw(n, epoch) for n in range(len(made))]
    return [(pair.query, pair.passages[0]) for pair in pairs]


def test_a_pair_a_hop_and_done_at_the_end(data: Path, encoder: BiEncoderModel) -> None:
    query, fact, rule = TWO_HOPS.text, "the otter is calm .", "if something is calm then it is kind ."
    assert texts(examples(data, encoder)) == [
        (query, fact),
        (f"{query} {fact}", rule),
        (f"{query} {fact} {rule}", DONE_TEXT),
    ]
    assert texts(examples(data, encoder, done=False)) == texts(examples(data, encoder))[:2]


def test_without_hops_every_gold_passage_is_paired_with_the_query_alone(
    data: Path, encoder: BiEncoderModel
) -> None:
    made = texts(examples(data, encoder, multistep=False))
    assert made == [
        (TWO_HOPS.text, "the otter is calm ."),
        (TWO_HOPS.text, "if something is calm then it is kind ."),
    ]


def test_a_shuffled_order_is_the_same_for_all_hops_and_another_in_another_epoch(
    data: Path, encoder: BiEncoderModel
) -> None:
    made = examples(data, encoder, shuffle=True)
    firsts = set()
    for epoch in range(20):
        (_, first), (second_query, second), (last_query, _) = texts(made, epoch)
        assert second_query == f"{TWO_HOPS.text} {first}"
        assert last_query == f"{second_query} {second}"
        assert texts(made, epoch) == texts(made, epoch)
        firsts.add(first)
    assert len(firsts) == 2


def test_equally_good_proofs_are_drawn_and_are_all_gold(data: Path, encoder: BiEncoderModel) -> None:
    other = Query("q", "is it so ?", ("otter-calm",), metadata='{"proofs": [["heron-calm"]]}')
    made = BiEncoderExamples(
        [other], {"q": {"otter-calm": 1}}, Corpus.read(data), encoder.query_text, PairOptions(done=False)
    )
    drawn = {made.draw(0, epoch).passages[0] for epoch in range(20)}
    assert drawn == {"the otter is calm .", "the heron is calm ."}
    assert len([key for key in made.draw(0, 0).gold if key != NO_KEY]) == 2


def test_hard_negatives_come_from_the_ranking_without_gold_copies_or_the_query_itself(
    encoder: BiEncoderModel,
) -> None:
    own = [Passage("q", "what ? so"), Passage("its text", "what ?", "a title"), Passage("copy", "what ? so")]
    corpus = Corpus.from_passages(
        [Passage(f"p{n}", f"text {n}") for n in range(30)]
        + [Passage("gold", "gold"), Passage("copy of gold", "gold"), Passage("copy of p3", "text 3"), *own]
    )
    ranking = [*(passage.id for passage in own), "gold", "p3", "copy of gold", "copy of p3", "p4", "p5"]
    made = BiEncoderExamples(
        [Query("q", "what ?", ("gold",))],
        {"q": {"gold": 1}},
        corpus,
        encoder.query_text,
        PairOptions(hard_negatives=2, done=False),
        ranks([ranking]),
    )
    pairs = [made.draw(0, epoch) for epoch in range(40)]
    assert {pair.passages[0] for pair in pairs} == {"gold"}
    assert {text for pair in pairs for text in pair.passages[1:]} == {"text 3", "text 4", "text 5"}
    assert all(len(set(pair.passages)) == 3 for pair in pairs)
    assert len(pairs[0].gold) == 3  # the query's own passages are no negatives in a batch, either


def test_a_short_ranking_is_filled_up_at_random(data: Path, encoder: BiEncoderModel) -> None:
    made = examples(data, encoder, [["lynx-calm"]], hard_negatives=4)
    pair = made.draw(0, 0)
    assert "the lynx is calm ." in pair.passages[1:]
    assert len(set(pair.passages)) == 5
    assert not set(pair.keys[1:]) & set(pair.gold)
    # 10 passages, 2 of them gold: 8 are wrong
    assert len(examples(data, encoder, [[]], hard_negatives=8).draw(0, 0).passages) == 9
    with pytest.raises(DataError, match=r"has 8 passages that are not gold.*lower it"):
        examples(data, encoder, [[]], hard_negatives=9)


def asked_for(queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int) -> list[list[str]]:
    """A miner that finds other passages after each evidence."""
    found = {"": ("lynx-calm", "lynx-quick"), "otter-calm": ("heron-calm", "heron-quick")}
    other = ["badger-calm", "badger-quick"]
    return [[*found.get(" ".join(passage.id for passage in before), other)][:k] for before in evidence]


@pytest.mark.parametrize("free", ["order", "shuffle", "proofs"])
def test_negatives_of_the_second_hop_come_from_the_evidence_that_it_reads(
    data: Path, encoder: BiEncoderModel, free: str
) -> None:
    corpus = Corpus.read(data)
    known = {"order": {"any_order": True}, "shuffle": {}, "proofs": {"proofs": [["r0", "otter-calm"]]}}
    query = TWO_HOPS._replace(evidence=("otter-calm", "r0"), metadata=json.dumps(known[free]))
    options = PairOptions(hard_negatives=2, shuffle=free == "shuffle")
    made = BiEncoderExamples(
        [query], {query.id: {"otter-calm": 1, "r0": 1}}, corpus, encoder.query_text, options, asked_for
    )
    seen = set()
    for epoch in range(12):
        pair = made.draw(1, epoch)
        after_fact = "the otter is calm" in pair.query
        seen.add(after_fact)
        wrong = "heron" if after_fact else "badger"
        assert sorted(pair.passages[1:]) == [f"the {wrong} is calm .", f"the {wrong} is quick ."]
        assert sorted(made.draw(0, epoch).passages[1:]) == ["the lynx is calm .", "the lynx is quick ."]
        assert len(made.draw(2, epoch).passages) == 3
    assert seen == {True, False}


def naive_false_negatives(pairs: list[Pair]) -> list[list[bool]]:
    """What :func:`false_negatives` must give, by the words of its docstring."""
    columns = [(b, n) for n in range(len(pairs[0].keys)) for b in range(len(pairs))]
    rows = []
    for b, pair in enumerate(pairs):
        seen: set[int] = set()
        row = []
        for c, n in columns:
            key = pairs[c].keys[n]
            bad = key in pair.gold or key == pair.keys[0] or key in seen
            row.append(bad and (c, n) != (b, 0))
            seen.add(key)
        rows.append(row)
    return rows


def test_gold_passages_and_copies_are_no_negatives(data: Path, encoder: BiEncoderModel) -> None:
    corpus = Corpus.read(data)
    some, qrels = read_split(data, "train", corpus)
    rankings = [[p.id for p in corpus]] * len(some)
    options = PairOptions(hard_negatives=2)
    made = BiEncoderExamples(some, qrels, corpus, encoder.query_text, options, ranks(rankings))
    pairs = [made.draw(n, 0) for n in range(len(made))]
    keys, gold = torch.tensor([p.keys for p in pairs]), torch.tensor([p.gold for p in pairs])
    mask = false_negatives(keys.T.flatten(), torch.arange(len(keys)), gold)
    assert mask.tolist() == naive_false_negatives(pairs)
    assert mask.any()
    assert not mask.all(dim=1).any()


def test_the_loss_is_the_librarys_where_nothing_is_masked(encoder: BiEncoderModel) -> None:
    torch.manual_seed(0)
    embeddings = [torch.randn(5, 8) for _ in range(3)]
    keys = torch.arange(10).view(2, 5).T
    ours = MaskedRankingLoss(encoder.model, scale=3.0, similarity_fct=dot_score)
    theirs = MultipleNegativesRankingLoss(encoder.model, scale=3.0, similarity_fct=dot_score)
    labels = torch.cat((keys, keys[:, :1]), dim=1)
    torch.testing.assert_close(
        ours.compute_loss_from_embeddings(embeddings, labels),
        theirs.compute_loss_from_embeddings(embeddings, labels),
    )


def test_the_loss_leaves_masked_passages_out(encoder: BiEncoderModel) -> None:
    torch.manual_seed(0)
    queries, passages = torch.randn(3, 8), torch.randn(3, 8)
    # The second passage is gold for the first query: its softmax has two terms.
    labels = torch.tensor([[0, 0, 1], [1, 1, NO_KEY], [2, 2, NO_KEY]])
    scores = 2.0 * queries @ passages.T
    expected = [
        F.cross_entropy(scores[0, [0, 2]], torch.tensor(0)),
        F.cross_entropy(scores[1], torch.tensor(1)),
        F.cross_entropy(scores[2], torch.tensor(2)),
    ]
    loss = MaskedRankingLoss(encoder.model, scale=2.0, similarity_fct=dot_score)
    found = loss.compute_loss_from_embeddings([queries, passages], labels)
    torch.testing.assert_close(found, torch.stack(expected).mean())


def test_data_of_one_passage_a_query_train_neither_hops_nor_done(
    data: Path, encoder: BiEncoderModel, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = Corpus.read(data)
    single = {"a": {"r0": 1}, "b": {"r1": 1}}
    some = [Query("a", "one ?"), Query("b", "two ?")]
    made = BiEncoderExamples(some, single, corpus, encoder.query_text, PairOptions())
    assert (len(made), made.done) == (2, False)
    assert "every query has one gold passage, so neither hops nor DONE are trained" in caplog.text
    asked = BiEncoderExamples(some, single, corpus, encoder.query_text, PairOptions(multistep=True))
    assert (len(asked), asked.done) == (4, True)
    two = {**single, "b": {"r0": 1, "r1": 1}}
    several = BiEncoderExamples(some, two, corpus, encoder.query_text, PairOptions())
    assert (len(several), several.done) == (5, True)


def test_a_miner_searches_with_the_evidence_of_the_hop() -> None:
    corpus = Corpus.from_passages([Passage("a", "otters eat fish"), Passage("b", "herons live in reeds")])
    mine = RetrieverMiner("bm25", corpus, 0)
    query = Query("q", "what do otters eat ?")
    alone, after = mine([query, query], [[], [Passage("e", "reeds reeds herons herons live")]], 2)
    assert alone[0] == "a"
    assert after[0] == "b"


def test_a_miner_cuts_long_queries(data: Path, encoder: BiEncoderModel, tmp_path: Path) -> None:
    corpus = Corpus.read(data)
    DenseRetriever.assemble(encoder, corpus).save_pretrained(tmp_path / "dense")
    mine = RetrieverMiner(str(tmp_path / "dense"), corpus, 0)
    (found,) = mine([Query("q", "otter " * 900)], [[]], 2)
    assert found


def test_hops_with_links_mine_what_the_evidence_names(tmp_path: Path) -> None:
    film = Passage("film", "A film by Mario Soffici.", "Blue Moon")
    born = [
        Passage(f"b{n}", f"Where the director of film {n} was born.", f"Birth {n} of all") for n in range(20)
    ]
    corpus = Corpus.from_passages([film, *born, Passage("man", "A man.", "Mario Soffici")])
    corpus.write(tmp_path / "corpus.jsonl")
    BM25Retriever(Corpus.read(tmp_path / "corpus.jsonl")).save_pretrained(tmp_path / "bm25")
    create(tmp_path / "hops", "hops", {"retriever": "../bm25", "hops": {"steps": "ranked"}})
    query = Query("q", "where was the director of the film born ?")
    for folder, first, count in (("bm25", "film", 22), ("hops", "man", 10)):
        mine = RetrieverMiner(str(tmp_path / folder), corpus, 0)
        (found,) = mine([query], [[film]], 22)
        assert (found[0], len(found)) == (first, count)
