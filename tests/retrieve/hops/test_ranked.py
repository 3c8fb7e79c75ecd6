"""Passages ranked by the probability that a chain holds them: hand-known sums, DONE, filters, the folder."""

import math
import random
from collections.abc import Sequence
from itertools import combinations, pairwise, permutations
from pathlib import Path
from types import SimpleNamespace

import pytest
from scripted_hops import SCRIPTED, ScriptedHops
from small_data import small_retriever, write_small

from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.decode import ScoredPassage
from grls.errors import ConfigError
from grls.explain.standing import format_standing, standings
from grls.retrieve.base import Under, single_steps
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.fusion.retriever import FusionRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.combine import Sets, after_hops
from grls.retrieve.hops.finders import LiveChain
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, RankedHops, hop_by_hop
from grls.retrieve.registry import create, load_retriever
from grls.runs.trec import read_run, write_run


def ranked(retriever: ScriptedHops, k: int = 6, **options: object) -> dict[str, float]:
    hops = HopOptions("ranked", **options)  # type: ignore[arg-type]
    (hits,) = RankedHops(retriever, hops).retrieve([Query("q", "?")], k)  # type: ignore[arg-type]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return {hit.id: hit.score for hit in hits}


def test_a_passage_has_the_probabilities_of_all_hops() -> None:
    table = {"": {"a": 0.6, "b": 0.4}, "a": {"c": 0.5, "b": 0.5}, "b": {"c": 0.75, "a": 0.25}}
    found = ranked(ScriptedHops(table), max=2)
    assert found == pytest.approx({"a": 0.6 + 0.4 * 0.25, "b": 0.4 + 0.6 * 0.5, "c": 0.6 * 0.5 + 0.4 * 0.75})


def test_one_hop_is_the_softmax_of_a_single_step() -> None:
    table = {"": {"a": 0.6, "b": 0.4}}
    assert ranked(ScriptedHops(table), max=1) == pytest.approx({"a": 0.6, "b": 0.4})
    halved = ranked(ScriptedHops(table), max=1, temperature=2.0)
    assert halved["a"] / halved["b"] == pytest.approx(math.sqrt(0.6 / 0.4))


def wide_corpus() -> Corpus:
    """Passages of which a hop leaves many out: all hold the word of the query, some more often."""
    words = ["river"] + [f"w{n}" for n in range(9)]
    texts = [" ".join(words[(n * step) % 10] for step in range(1, 5 + n % 7)) for n in range(120)]
    return Corpus.from_passages(
        [Passage(f"p{n}", f"river {text}", f"t{n % 13}") for n, text in enumerate(texts)]
    )


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_neither_score_nor_order_depends_on_k(hops: int) -> None:
    """Where probability was shared out among k hits, every score fell with k above 20."""
    bm25 = BM25Retriever(wide_corpus())
    retriever = RankedHops(bm25, HopOptions("ranked", max=hops, evidence=4, temperature=0.5, chains=2))
    query = Query("q", "river w1 w4")
    (full,) = retriever.retrieve([query, Query("o", "river w2")], 120)[:1]
    assert len(full) == 120
    assert [hit.score for hit in full] == sorted((hit.score for hit in full), reverse=True)
    assert len({hit.id for hit in full}) == 120
    for k in (1, 2, 5, 20, 21, 40, 100, 119):
        assert retriever.retrieve([query], k)[0] == full[:k]
    after = retriever.retrieve_by_hops([query], 40)
    assert [len(one[0]) for one in after] == [40] * hops


def test_an_explanation_has_the_rank_and_score_of_a_search() -> None:
    retriever = RankedHops(BM25Retriever(wide_corpus()), HopOptions("ranked", max=2, temperature=0.5))
    query = Query("q", "river w1 w4")
    (hits,) = retriever.retrieve([query], 5)
    made = standings(retriever, query, [hit.id for hit in hits], 100)
    assert [(one.rank, one.score) for one in made] == [(n, hit.score) for n, hit in enumerate(hits, 1)]
    assert "the probability that a chain of hops holds the passage" in format_standing(made[0])


def test_the_end_of_a_ranking_is_that_of_a_single_step() -> None:
    bm25 = BM25Retriever(wide_corpus())
    (hits,) = RankedHops(bm25, HopOptions("ranked", max=1)).retrieve([Query("q", "river w1 w4")], 60)
    (single,) = bm25.retrieve([Query("q", "river w1 w4")], 60)
    assert [hit.id for hit in hits] == [hit.id for hit in single]
    assert sum(hit.score for hit in hits[:20]) == pytest.approx(1.0)
    assert hits[40].score / hits[0].score == pytest.approx(
        math.exp((single[40].score - single[0].score) / bm25.temperature)
    )


def test_no_score_of_a_ranking_rises() -> None:
    """The quotient that scales the end of a ranking rounds, and so does its product with a score."""
    drawn = random.Random(0)
    for _ in range(2000):
        mass = {f"m{n}": drawn.random() ** drawn.randint(1, 40) for n in range(drawn.randint(1, 5))}
        scores = sorted((drawn.random() for _ in range(drawn.randint(0, 5))), reverse=True)
        beyond = [Hit(f"b{n}", score) for n, score in enumerate(scores)]
        hits = after_hops(mass, beyond, drawn.randint(1, 10))
        assert all(after.score <= before.score for before, after in pairwise(hits))


@pytest.mark.parametrize("temperature", [0.1, 0.5, 3.0])
def test_a_ranking_deeper_than_its_hops_is_a_run(temperature: float, tmp_path: Path) -> None:
    """One score of eighteen rounded above the last one of the hops, and no run was written."""
    bm25 = BM25Retriever(wide_corpus())
    retriever = RankedHops(bm25, HopOptions("ranked", max=2, temperature=temperature))
    queries = [Query(f"q{n}-{m}", f"river w{n} w{m} t{n + m}") for n in range(9) for m in range(4)]
    found = retriever.retrieve(queries, 120)
    rankings = {query.id: hits for query, hits in zip(queries, found, strict=True)}
    write_run(tmp_path / "run.trec", rankings)
    written = read_run(tmp_path / "run.trec")
    assert {name: [hit.id for hit in hits] for name, hits in written.items()} == {
        name: [hit.id for hit in hits] for name, hits in rankings.items()
    }


def random_table(seed: int) -> dict[str, dict[str, float]]:
    """Every chain of the scripted passages with random probabilities of the next one."""
    drawn, names = random.Random(seed), "abcdefg"
    chains = ["".join(chain) for n in range(4) for chain in permutations(names, n)]
    return {chain: {name: drawn.random() for name in names if name not in chain} for chain in chains}


class Filtered(ScriptedHops):
    """A table of which a filter leaves some passages, the likeliest first."""

    def retrieve_hop(self, queries, evidence, k, allow=None):  # type: ignore[no-untyped-def]
        numbers = dict(zip("abcdefg", range(7), strict=True))
        steps = super().retrieve_hop(queries, evidence, k)
        allowed = [set(own.numbers(SCRIPTED).tolist()) for own in allow]
        return [
            step._replace(
                hits=sorted((hit for hit in step.hits if numbers[hit.id] in own), key=lambda hit: -hit.score)
            )
            for step, own in zip(steps, allowed, strict=True)
        ]


@pytest.mark.parametrize("chains", [1, 5])
def test_as_many_hops_as_passages_rank_as_a_single_step(chains: int) -> None:
    """Every chain holds every passage: what is dropped and how sums round ranked them before."""
    allow = [set(ids) for size in (1, 2, 3, 4) for ids in combinations("abcdefg", size)]
    queries = [Query(str(n), "?") for n in range(len(allow))]
    retriever = Filtered(random_table(3), learned=False)
    ranked_so = RankedHops(retriever, HopOptions("ranked", max=4, chains=chains))  # type: ignore[arg-type]
    single = RankedHops(retriever, HopOptions("ranked", max=1))  # type: ignore[arg-type]
    hopped, once = ranked_so.retrieve(queries, 4, allow), single.retrieve(queries, 4, allow)
    assert [[hit.id for hit in hits] for hits in hopped] == [[hit.id for hit in hits] for hits in once]
    assert {hit.score for hits in hopped for hit in hits} == {1.0}
    (informed,) = RankedHops(retriever, HopOptions("ranked", max=3)).retrieve(  # type: ignore[arg-type]
        ["?"], 4, {"a", "b", "c", "d"}
    )
    assert len({hit.score for hit in informed}) == 4


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> GenerativeRetriever:
    """A generator over seven passages of four texts."""
    one = small_retriever(write_small(tmp_path_factory.mktemp("copies") / "data"))
    texts = ["the otter is calm .", "the lynx is quick .", "the otter is kind .", "the lynx is proud ."]
    corpus = Corpus.from_passages([Passage(f"p{n}", texts[n % 4]) for n in range(7)])
    options = SearchOptions(beams=8)
    return GenerativeRetriever.assemble(one.model, one.codec.tokenizer, corpus, options=options)


@pytest.mark.parametrize("done", [False, True])
def test_as_many_hops_as_different_passages_rank_as_a_single_step(
    copies: GenerativeRetriever, done: bool
) -> None:
    """A chain holds one of two copies, so each of them had a part of what the others have."""
    names = [f"p{n}" for n in range(7)]
    allow = [set(ids) for size in (3, 4, 5) for ids in combinations(names, size)]
    queries = [Query(str(n), "is the otter kind ?") for n in range(len(allow))]
    hops = RankedHops(copies, HopOptions("ranked", max=3, done=done))
    single = RankedHops(copies, HopOptions("ranked", max=1))
    pairs = zip(hops.retrieve(queries, 7, allow), single.retrieve(queries, 7, allow), allow, strict=True)
    few = [(hits, once) for hits, once, ids in pairs if len({int(name[1]) % 4 for name in ids}) <= 3]
    assert len(few) > 30
    as_once = [[hit.id for hit in hits] == [hit.id for hit in once] for hits, once in few]
    certain = [{hit.score for hit in hits} == {1.0} for hits, _ in few]
    assert all(as_once) is all(certain) is (not done)


def test_words_that_few_passages_hold_rank_as_a_single_step() -> None:
    """The corpus is larger, but no hop finds more than four passages."""
    texts = ["otter fish", "otter reed", "otter fish reed", "otter holt reed", "heron", "crane", "stork"]
    bm25 = BM25Retriever(Corpus.from_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)]))
    for query in ("otter", "otter reed", "holt", "fish otter otter", "reed fish"):
        (single,), (hops,) = (
            bm25.retrieve([query], 7),
            hop_by_hop(bm25, HopOptions("ranked")).retrieve([query], 7),
        )
        assert [hit.id for hit in hops][: len(single)] == [hit.id for hit in single]


def test_a_fusion_stretches_no_rounding() -> None:
    """Scores that mean the same count the same: 1, where the lowest was 0 and the highest 1."""
    corpus = Corpus.from_passages([Passage(f"p{n}", f"otter {'reed ' * n}") for n in range(4)])
    bm25 = BM25Retriever(corpus)
    hops = hop_by_hop(bm25, HopOptions("ranked", max=4))
    fused = FusionRetriever([hops, bm25], Fusion("sum", weights=(0.5, 0.5)))
    (hits,), (single,) = fused.retrieve(["otter reed"], 4), bm25.retrieve(["otter reed"], 4)
    assert [hit.id for hit in hits] == [hit.id for hit in single]
    assert hits[-1].score == pytest.approx(0.5)


def test_equal_probabilities_keep_the_order_of_the_first_hop() -> None:
    """0.1 + 0.2 is more than 0.3 by rounding alone."""
    table = {"": {"c": 0.3, "a": 0.1, "b": 0.6}, "b": {"a": 0.2 / 0.6, "d": 0.4 / 0.6}}
    found = ranked(ScriptedHops(table), max=2)
    assert found["c"] == found["a"] == 0.3
    assert list(found) == ["b", "d", "c", "a"]


def test_a_memory_keeps_hops_of_other_numbers_of_hits_apart() -> None:
    bm25, memory = BM25Retriever(wide_corpus()), {}
    for k in (5, 60, 5):
        hops = RankedHops(bm25, HopOptions("ranked", max=2, temperature=0.5), memory)
        alone = RankedHops(bm25, HopOptions("ranked", max=2, temperature=0.5))
        assert hops.retrieve(["river w1 w4"], k) == alone.retrieve(["river w1 w4"], k)


def test_nothing_follows_from_done() -> None:
    table = {"": {"a": 1.0}, "a": {"b": 0.2, "DONE": 0.8}, "ab": {"c": 1.0}}
    assert ranked(ScriptedHops(table), max=3) == pytest.approx({"a": 1.0, "b": 0.2, "c": 0.2})
    assert ranked(ScriptedHops(table, learned=False), max=3) == pytest.approx({"a": 1.0, "b": 1.0, "c": 1.0})
    biased = ranked(ScriptedHops(table), max=3, done_bias=math.log(0.25))  # 0.2 against 0.2
    assert biased == pytest.approx({"a": 1.0, "b": 0.5, "c": 0.5})


def test_orders_of_one_set_are_one_chain_in_the_likelier_order() -> None:
    table = {
        "": {"a": 0.7, "b": 0.3},
        "a": {"b": 1.0},
        "b": {"a": 1.0},
        "ab": {"c": 1.0},
    }
    retriever = ScriptedHops(table)
    assert ranked(retriever, max=3) == pytest.approx({"a": 1.0, "b": 1.0, "c": 1.0})
    assert "ba" not in retriever.asked


def test_of_three_orders_the_likeliest_one_is_kept_and_not_the_first() -> None:
    """The third is likelier than each of the others, though not than both together."""
    sets = Sets()
    for order, weight in (("abc", 0.2), ("bac", 0.15), ("cab", 0.3)):
        sets.add(LiveChain(0, tuple(Hit(name, 0.0) for name in order), weight))
    sets.total = 0.65
    (kept,) = sets.likeliest(2, None)
    assert ("".join(hit.id for hit in kept.hits), kept.total) == ("cab", pytest.approx(0.65))


def test_a_set_has_the_probability_of_all_its_orders() -> None:
    """Of a and b in both orders 0.4, of any other two 0.3: the one set that is kept goes on."""
    table = {
        "": {"a": 0.5, "b": 0.5},
        "a": {"b": 0.4, "c": 0.6},
        "b": {"a": 0.4, "d": 0.6},
        "ab": {"e": 1.0},
        "ba": {"e": 1.0},
        "ac": {"f": 1.0},
        "bd": {"f": 1.0},
    }
    retriever = ScriptedHops(table)
    hops = RankedHops(retriever, HopOptions("ranked", max=3, chains=2))
    hops.retrieve([Query("q", "?")], 6)
    assert set(retriever.asked[3:]) & {"ab", "ba"}
    assert len(retriever.asked) == 5  # of three sets of two passages two are kept


def test_chains_that_are_not_kept_leave_their_share_to_those_that_are() -> None:
    table = {"": {"a": 0.5, "b": 0.3, "c": 0.2}, "a": {"d": 1.0}}
    found = ranked(ScriptedHops(table), max=2, chains=1)
    assert found == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2, "d": 1.0})


def test_what_hops_lead_to_stands_before_what_a_single_step_finds() -> None:
    corpus = Corpus.from_passages(
        [
            Passage("film", "The Amber Mill is a film. Its director was Orla Vance.", "The Amber Mill"),
            Passage("person", "Orla Vance was born in Tallow. Orla Vance painted.", "Orla Vance"),
            Passage("decoy", "A director leads.", "Director"),
            Passage("other", "Rain falls on the sea.", "Rain"),
            *(Passage(f"p{n}", f"Line {n} of a list of trains.", "Trains") for n in range(6)),
        ]
    )
    bm25 = BM25Retriever(corpus)
    query = [Query("q", "Where was the director of The Amber Mill born?")]
    single = [hit.id for hit in bm25.retrieve(query, 2)[0]]
    hops = hop_by_hop(bm25, HopOptions("ranked", max=2, evidence=20, temperature=0.5))
    found = [hit.id for hit in hops.retrieve(query, 2)[0]]
    assert single == ["film", "decoy"]
    assert found == ["film", "person"]
    allowed = hops.retrieve(query, 4, {"film", "other"})[0]
    assert {hit.id for hit in allowed} <= {"film", "other"}


def test_a_hop_reads_excerpts_of_its_evidence() -> None:
    corpus = Corpus.from_passages(
        [Passage("a", "Red rivers run. Green hills stand. Snow falls."), Passage("b", "Snow on hills.")]
    )

    class Recording(BM25Retriever):
        def retrieve(self, queries, k, allow=None):  # type: ignore[no-untyped-def]
            asked.extend(query.text for query in queries)
            return super().retrieve(queries, k, allow)

    asked: list[str] = []
    hops = RankedHops(Recording(corpus), HopOptions("ranked", max=2, evidence=6, chains=1))
    hops.retrieve([Query("q", "red snow")], 2)
    assert asked == ["red snow", "red snow Red rivers run. Snow falls."]


def test_equal_queries_keep_their_own_filters() -> None:
    bm25 = BM25Retriever(Corpus.from_passages([Passage("a", "red river"), Passage("b", "red hill")]))
    query = Query("q", "red")
    for memory in (None, {}):
        hops = RankedHops(bm25, HopOptions("ranked", max=1), memory)
        found = hops.retrieve([query, query], 2, [{"a"}, {"b"}])
        assert [[hit.id for hit in hits] for hits in found] == [["a"], ["b"]]


hidden: list[tuple[int, ...]] = []
"""What each hop of a :class:`Writing` may not find."""


class Writing(ScriptedHops):
    """Decodes: its scores are log-probabilities, and so is that of DONE."""

    writes_chains, widest, done = True, 10, len(SCRIPTED)
    generator = SimpleNamespace(spans=None, index=SimpleNamespace(rows=SimpleNamespace(row_of=range(8))))

    def look_ahead(self, query: Query, evidence: Sequence[Passage]) -> None:
        return None

    def next_hop(self, queries: Sequence[Query], allow: object) -> object:
        def find(live: Sequence[Under], hop: int, k: int) -> list[list[ScoredPassage]]:
            found = []
            for chain in live:
                hidden.append(chain.hidden)
                row = self.table["".join(SCRIPTED.ids(chain.passages))]
                numbers = {name: n for n, name in enumerate(SCRIPTED.ids(range(len(SCRIPTED))))}
                scored = [
                    ScoredPassage(numbers.get(name, self.done), math.log(share))
                    for name, share in row.items()
                ]
                found.append([hit for hit in scored if hit.passage not in chain.hidden][:k])
            return found

        return find


def test_a_generator_knows_the_probability_of_done() -> None:
    """The bias is one on its log-odds; the hits share the rest, at any temperature."""
    table = {"": {"a": 0.75, "DONE": 0.25}, "a": {"b": 0.3, "c": 0.2, "DONE": 0.5}}
    found = ranked(Writing(table), max=2)
    assert found == pytest.approx({"a": 1.0, "b": 0.3, "c": 0.2})
    sharp = ranked(Writing(table), max=2, temperature=0.5)
    assert sharp["b"] + sharp["c"] == pytest.approx(0.5)
    assert sharp["b"] / sharp["c"] == pytest.approx(1.5**2)
    biased = ranked(Writing(table), max=2, done_bias=math.log(3))
    assert biased["b"] + biased["c"] == pytest.approx(0.25)
    without = ranked(Writing(table), max=2, done=False)
    assert without["b"] + without["c"] == pytest.approx(1.0)


def test_done_comes_after_evidence_and_evidence_not_again() -> None:
    hidden.clear()
    ranked(Writing({"": {"a": 0.9, "DONE": 0.1}, "a": {"b": 1.0}}), max=2)
    assert hidden == [(len(SCRIPTED),), (0,)]


def test_a_generator_reads_the_evidence_that_it_learned_to_read() -> None:
    with pytest.raises(ConfigError, match=r"hops\.evidence"):
        RankedHops(Writing({}), HopOptions("ranked", evidence=8))


def test_hops_are_four_where_nothing_is_said() -> None:
    assert HopOptions("ranked").count == 4
    assert HopOptions("dynamic").count == 20
    assert HopOptions("ranked", max=2).count == 2


def test_a_folder_goes_so(tmp_path: Path) -> None:
    BM25Retriever(SCRIPTED).save_pretrained(tmp_path / "bm25")
    spec = {"retriever": "../bm25", "hops": {"steps": "ranked", "max": 2}}
    create(tmp_path / "hops", "hops", spec)
    opened = load_retriever(tmp_path / "hops")
    assert isinstance(opened, RankedHops)
    assert opened.describe().steps == "ranked"
    assert opened.fingerprint() != hop_by_hop(opened, HopOptions("ranked", max=3)).fingerprint()


def test_what_ranked_hops_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hops\.branch"):
        HopOptions("ranked", branch=2)
    with pytest.raises(ConfigError, match=r"hops\.temperature"):
        HopOptions("fixed", temperature=0.5)
    with pytest.raises(ConfigError, match="temperature must be above 0"):
        HopOptions("ranked", temperature=0.0)
    with pytest.raises(ConfigError, match="make no chains"):
        HopsRetriever(ScriptedHops({}), HopOptions("ranked"))  # type: ignore[arg-type]
    one = BM25Retriever(SCRIPTED)
    assert single_steps(hop_by_hop(one, HopOptions("ranked"))) is one
