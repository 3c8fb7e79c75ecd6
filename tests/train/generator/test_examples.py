"""What each stage learns, on passages known by heart."""

import json
from typing import Any

import pytest
from small_data import passages, small_tokenizer, write_small
from train_helpers import AsPairs

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages
from grls.data.types import Passage, Query
from grls.train.core.examples import Example
from grls.train.generator.examples import MemoriseExamples, RetrieveExamples


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    return Codec(small_tokenizer(write_small(tmp_path_factory.mktemp("examples") / "data")))


CORPUS = Corpus.from_passages(passages())
TEXT = {p.id: p.text for p in passages()}


def row(codec: Codec, passage: str) -> list[int]:
    return codec.passages([Passage("x", TEXT[passage])])[0].tolist()


def alone(codec: Codec, queries: list[Query], qrels: Any = None, **options: Any) -> AsPairs:
    return AsPairs(RetrieveExamples(queries, qrels or {}, CORPUS, codec, together=False, **options), CORPUS)


def retrieve(codec: Codec, query: Query, qrels: Any = None, **options: Any) -> AsPairs:
    return alone(codec, [query], qrels, **options)


def memorise(corpus: Corpus, codec: Codec, *options: Any, **named: Any) -> AsPairs:
    return AsPairs(MemoriseExamples(corpus, codec, *options, **named), corpus)


def draw_all(examples: AsPairs, epoch: int = 0) -> list[Example]:
    return [examples.draw(n, epoch) for n in range(len(examples))]


@pytest.mark.parametrize(("front", "kept"), [(0.7, 8), (0.2, 2), (0.01, 1), (0.99, 12)])
def test_the_front_is_a_share_of_the_tokens(codec: Codec, front: float, kept: int) -> None:
    """A passage of twelve tokens; at least one is shown, and at least the end is left to write."""
    ids = [*codec.texts(["the otter is calm . the lynx is quick ."])[0]]
    corpus = Corpus.from_passages([Passage("a", "the otter is calm . the lynx is quick .")])
    assert len(ids) == 12
    whole = memorise(corpus, codec, front).draw(0, 0)
    assert whole == Example([*ids[:kept], codec.end], [*ids, codec.end])
    rest = memorise(corpus, codec, front, target="rest").draw(0, 0)
    assert rest == Example([*ids[:kept], codec.end], [*ids[kept:], codec.end])


def test_the_front_of_a_path_is_subject_and_relation(codec: Codec) -> None:
    corpus = Corpus.from_passages([Passage("a", "the otter; is; calm")])
    front = codec.texts(["the otter; is"])[0]
    target = codec.passages([corpus[0]])[0].tolist()
    assert memorise(corpus, codec, unit="path").draw(0, 0) == Example([*front, codec.end], target)
    rest = memorise(corpus, codec, unit="path", target="rest").draw(0, 0)
    assert rest.target == target[len(front) :]
    titled = corpus[0]._replace(title="badger")
    read = codec.passages([titled._replace(text="the otter; is")])[0][:-1].tolist()
    shown = memorise(Corpus.from_passages([titled]), codec, unit="path").draw(0, 0).source
    assert shown == codec.plain_input(read)


def test_every_passage_is_an_example_short_ones_too(codec: Codec) -> None:
    corpus = Corpus.from_passages([*passages(), Passage("e", ""), Passage("o", "otter")])
    for target in ("whole", "rest"):
        examples = memorise(corpus, codec, target=target)
        assert len(examples) == len(examples.examples.lengths()) == 12
        assert examples.draw(10, 0) == Example([codec.end], [codec.end])
        assert all(examples.draw(n, 0).target[-1] == codec.end for n in range(12))
        assert examples.draw(3, 0) == examples.draw(3, 9)


TWO_HOPS = Query("q", "is the otter kind ?", ("otter-calm", "r0"))


def test_hops_see_the_evidence_so_far_and_done_is_last(codec: Codec) -> None:
    text = codec.texts([TWO_HOPS.text])[0]
    first, second = row(codec, "otter-calm"), row(codec, "r0")
    assert draw_all(retrieve(codec, TWO_HOPS)) == [
        Example(codec.model_input(text), first),
        Example(codec.model_input(text, [first]), second),
        Example(codec.model_input(text, [first, second]), codec.done_sequence.tolist()),
    ]
    assert draw_all(retrieve(codec, TWO_HOPS, done=False)) == draw_all(retrieve(codec, TWO_HOPS))[:2]


def test_single_step_learns_every_gold_passage_from_the_query_alone(codec: Codec) -> None:
    text = codec.model_input(codec.texts([TWO_HOPS.text])[0])
    assert draw_all(retrieve(codec, TWO_HOPS, multistep=False)) == [
        Example(text, row(codec, "otter-calm")),
        Example(text, row(codec, "r0")),
    ]


@pytest.mark.parametrize(("said", "firsts"), [(True, {0, 1}), (False, {0}), ("true", {0}), (None, {0})])
def test_evidence_that_any_order_suits_is_drawn_anew(codec: Codec, said: object, firsts: set[int]) -> None:
    """For this query alone: the other one of the same set keeps its order."""
    free = TWO_HOPS._replace(id="free", metadata=json.dumps({"any_order": said}))
    examples = alone(codec, [TWO_HOPS, free])
    rows = [row(codec, "otter-calm"), row(codec, "r0")]
    assert {rows.index(examples.draw(0, epoch).target) for epoch in range(30)} == {0}
    assert {rows.index(examples.draw(3, epoch).target) for epoch in range(30)} == firsts
    for epoch in range(10):
        hops = [examples.draw(n, epoch) for n in (3, 4)]
        assert {rows.index(hop.target) for hop in hops} == {0, 1}
        assert hops[1].source == codec.model_input(codec.texts([free.text])[0], [hops[0].target])


def test_qrels_without_evidence_come_in_a_drawn_order(codec: Codec) -> None:
    query = Query("q", "is the otter kind ?")
    qrels = {"q": {"otter-calm": 1, "r0": 2, "r1": 0, "lynx-calm": -1}}
    assert gold_passages(query, qrels) == ["otter-calm", "r0"]
    examples = retrieve(codec, query, qrels)
    assert len(examples) == 3
    firsts = {tuple(examples.draw(0, epoch).target) for epoch in range(30)}
    assert firsts == {tuple(row(codec, "otter-calm")), tuple(row(codec, "r0"))}


def test_a_draw_is_one_order_for_all_hops_and_a_function_of_the_epoch(codec: Codec) -> None:
    examples, again = (retrieve(codec, TWO_HOPS, shuffle=True, seed=5) for _ in range(2))
    other = retrieve(codec, TWO_HOPS, shuffle=True, seed=6)
    for epoch in range(20):
        first, second, done = draw_all(examples, epoch)
        text = codec.texts([TWO_HOPS.text])[0]
        assert second.source == codec.model_input(text, [first.target])
        assert done.source == codec.model_input(text, [first.target, second.target])
        assert {tuple(first.target), tuple(second.target)} == {
            tuple(row(codec, p)) for p in TWO_HOPS.evidence
        }
        assert draw_all(again, epoch) == [first, second, done]
    assert any(draw_all(other, e) != draw_all(examples, e) for e in range(20))


def test_each_epoch_draws_one_of_the_equally_good_proofs(codec: Codec) -> None:
    proofs = [["otter-calm", "r0"], ["heron-calm", "r0"], ["lynx-calm", "badger-calm", "r0"]]
    query = TWO_HOPS._replace(metadata=json.dumps({"proofs": proofs}))
    examples = retrieve(codec, query)
    assert len(examples) == 3, "a proof of another length is left out"
    firsts = {tuple(examples.draw(0, epoch).target) for epoch in range(40)}
    assert firsts == {tuple(row(codec, "otter-calm")), tuple(row(codec, "heron-calm"))}
