"""Retrieval by spans: pooled by passage, hop by hop, with filters and priors, on disk, and after updates."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import fails, raises
from fixture_types import Capsys
from models_small import log_probability
from small_data import of_spans, queries

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.identifiers import FOLDER, IDENTIFIERS, Identifiers, read_kind
from grls.data.types import Passage
from grls.decode.beam import ScoredPassage
from grls.decode.frontier import Frontier
from grls.decode.prior import Fixed, Prior, WeightedPrior
from grls.errors import DataError, MismatchError
from grls.identifiers.spans import Spans
from grls.index.build import index_sequences
from grls.io.files import read_json, write_json
from grls.io.seal import seal
from grls.models.load.generators import CausalLM
from grls.retrieve.generative import span_scores as views_module
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.span_scores import (
    PassageScores,
    Reach,
    SpanRanking,
    passage_scores,
    prior_over_spans,
    ranked,
)
from grls.retrieve.hybrid.priors import WeightedSource, open_sources
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.spec import MANIFEST, read_spec


@pytest.fixture
def retriever(data: Path, llama: Path) -> GenerativeRetriever:
    loaded = CausalLM(str(llama)).load()
    parts = (loaded.model.eval(), loaded.tokenizer, Corpus.read(data))
    return GenerativeRetriever.assemble(*parts, options=WIDE, kind=Spans(3))


def every_span(retriever: GenerativeRetriever, query: int = 0) -> list[float]:
    source = retriever.codec.model_input(retriever.encode([queries()[query]])[0])
    numbers = range(len(retriever.index))
    return [log_probability(retriever.model, retriever.index, source, number) for number in numbers]


def probabilities(found: list[ScoredPassage]) -> dict[int, float]:
    return {some.passage: math.exp(some.score) for some in found}


def test_what_may_be_found_has_the_whole_of_spans_that_it_shares_with_what_may_not(llama: Path) -> None:
    """The other passages of a row are filtered out, excluded or both: the rest has all that the row has."""
    retriever = sharing(llama, ["calm .", "calm .", "the lynx"], beams=10, span_temperature=1.0)
    source, done = retriever.codec.model_input(retriever.encode(queries()[:1])[0]), retriever.done
    two, alone = retriever.subsets(queries()[:2], [["p0", "p2"], ["p2"]])
    for exclude, allow, left in (
        ([done], two, {0, 2}), ([done, 0], None, {1, 2}), ([0], None, {1, 2, done}), ([0, 0], two, {2, done})
    ):  # fmt: skip
        found = probabilities(retriever.search([source], 5, [exclude], subsets=[allow])[0])
        assert set(found) == left
        assert sum(found.values()) == pytest.approx(1.0, abs=1e-4)
    assert found == pytest.approx(probabilities(retriever.search([source], 5, [[]], subsets=[alone])[0]))
    twins = probabilities(retriever.search([source], 5, [[done]])[0])
    assert twins[0] == pytest.approx(twins[1])  # equal parts of the view that they share


def sharing(llama: Path, texts: list[str], **options: Any) -> GenerativeRetriever:
    """A retriever over some passages of the small set's words, p0, p1, …"""
    loaded = CausalLM(str(llama)).load()
    corpus = Corpus.from_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)])
    parts = (loaded.model.eval(), loaded.tokenizer, corpus)
    return GenerativeRetriever.assemble(*parts, options=SearchOptions(**options), kind=Spans(3))


@pytest.mark.parametrize("fast", [True, False])
def test_more_passages_are_ranked_than_the_beam_writes(llama: Path, fast: bool) -> None:
    texts = ["calm ."] * 40 + ["the lynx is quick .", "the heron ."]
    retriever = sharing(llama, texts, beams=1, early_stop=True)
    if not fast:
        retriever.trees = None
    hits = retriever.retrieve(queries()[:2], 50)
    assert [{hit.id for hit in some} for some in hits] == [{f"p{n}" for n in range(42)}] * 2
    assert all(some == sorted(some, key=lambda hit: -hit.score) for some in hits)
    assert [hit.id for hit in retriever.retrieve(queries()[:1], 3)[0]] == [hit.id for hit in hits[0][:3]]


def test_a_passage_in_the_chain_leaves_the_spans_that_others_share(llama: Path) -> None:
    retriever = sharing(llama, ["the badger is calm .", "badger is calm .", "the lynx"], beams=10)
    source = retriever.codec.model_input(retriever.encode(queries()[:1])[0])
    found = retriever.search([source], 5, [[0, retriever.done]])[0]
    assert {some.passage for some in found} == {1, 2}
    found = retriever.search([source], 5, [[0, 1]])[0]
    assert {some.passage for some in found} == {2, 3}  # and DONE


def expected_hits(
    retriever: GenerativeRetriever, scores: np.ndarray, temperature: float, said: np.ndarray | None = None
) -> tuple[list[str], list[float]]:
    """The formula, passage by passage, from log-probabilities of all spans but DONE."""
    spans = retriever.spans
    assert spans is not None
    row_of = np.asarray(retriever.index.rows.row_of)[:-1]
    shared = np.bincount(row_of)[row_of]
    found = []
    for number in range(len(retriever.corpus)):
        own = [scores[v] - math.log(shared[v]) for v in range(*spans.offsets[number : number + 2])]
        powers = sum(math.exp(score / temperature) for score in own)
        found.append(math.log(powers) - (1 - 1 / temperature) * math.log(len(own)))
    if said is not None:
        found = list(np.array(found) + said / temperature)
    found = list(np.array(found) - np.logaddexp.reduce(found))
    order = np.argsort(-np.array(found), kind="stable").tolist()
    return retriever.corpus.ids(order), [float(found[n]) for n in order]


def test_the_search_finds_what_all_spans_say(retriever: GenerativeRetriever) -> None:
    retriever.options = replace(retriever.options, span_temperature=2.0)
    own = np.array(every_span(retriever)[:-1])
    own -= math.log(-math.expm1(every_span(retriever)[-1]))  # without DONE: what is left sums to one
    ids, scores = expected_hits(retriever, own, 2.0)
    hits = retriever.retrieve(queries()[:1], 10)[0]
    assert [hit.id for hit in hits] == ids
    assert [hit.score for hit in hits] == pytest.approx(scores, abs=1e-4)
    plain = GenerativeRetriever.assemble(
        retriever.model, retriever.codec.tokenizer, retriever.corpus, options=WIDE
    )
    assert [hit.id for hit in plain.retrieve(queries()[:1], 10)[0]] != [hit.id for hit in hits]


def test_a_prior_of_passages_is_spread_over_their_spans(retriever: GenerativeRetriever) -> None:
    spans = retriever.spans
    assert spans is not None
    weights = np.log(np.arange(1.0, 12.0))[None]  # ten passages and DONE
    part = WeightedPrior(lambda queries: weights[queries], 1.0, Fixed(10, math.log(0.25)))
    (found,) = prior_over_spans(Prior((part,)), spans).parts
    assert found.fixed == Fixed(len(spans), math.log(0.25))
    assert found.pieces is not None
    masses = np.exp(weights[0] - found.pieces.log_counts)[found.pieces.owners]
    np.testing.assert_allclose(np.bincount(spans.owners, masses), np.arange(1.0, 12.0))


def test_with_a_prior_it_finds_what_spans_and_prior_say(retriever: GenerativeRetriever) -> None:
    retriever.options = replace(retriever.options, span_temperature=1.5, span_threshold=None)
    (source,) = open_sources(retriever.corpus, ["bm25"])
    hybrid = HybridRetriever(retriever, [WeightedSource(source, 1.5)])
    own = np.array(every_span(retriever)[:-1])
    own -= math.log(-math.expm1(every_span(retriever)[-1]))  # DONE is hidden
    scores = source.scores(queries()[:1], [()])(np.array([0]))[0] / 2.0
    prior = scores - np.logaddexp.reduce(scores)
    ids, expected = expected_hits(retriever, own, 1.5, 1.5 * prior)
    hits = hybrid.retrieve(queries()[:1], 10)[0]
    assert [hit.id for hit in hits] == ids
    assert [hit.score for hit in hits] == pytest.approx(expected, abs=1e-3)
    found = hybrid.candidates(queries()[:1], 1)[0]
    assert [some.passage for some in found] == retriever.corpus.numbers(ids)
    apart = np.array([some.score for some in found]) / 1.5 - np.array(expected)
    np.testing.assert_allclose(apart, apart[0], atol=1e-3)


def test_beside_a_normalized_prior_passages_have_probabilities(retriever: GenerativeRetriever) -> None:
    """Scores that are normalized at every token are no sums, and are left as they are."""
    retriever.options = replace(retriever.options, span_temperature=1.0)
    (source,) = open_sources(retriever.corpus, ["bm25"])
    hybrid = HybridRetriever(retriever, [WeightedSource(source, 1.0)], normalized=True)
    hits = hybrid.retrieve(queries()[:1], 10)[0]
    assert len(hits) == 10
    assert sum(math.exp(hit.score) for hit in hits) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ([], "no JSON object"),
        ({"kind": "spans"}, "kind or options are missing"),
        ({"kind": "none", "options": {}}, "unknown kind of identifiers 'none'"),
        ({"kind": "spans", "options": {"words": 0}}, "words must be at least 1, got 0"),
        ({"kind": "spans", "options": {"length": 3}}, "no argument 'length'"),
    ],
)
def test_damaged_identifiers_are_named(
    retriever: GenerativeRetriever, tmp_path: Path, content: Any, fault: str
) -> None:
    retriever.save_pretrained(tmp_path / "saved")
    write_json(tmp_path / "saved" / FOLDER / IDENTIFIERS, content)
    seal(tmp_path / "saved" / MANIFEST, read_spec(tmp_path / "saved"))
    told = rf"identifiers\.json.*{fault}"
    raises(DataError, told, GenerativeRetriever.from_pretrained, tmp_path / "saved")


def test_spans_of_another_length_do_not_belong_to_the_index(
    retriever: GenerativeRetriever, tmp_path: Path
) -> None:
    retriever.save_pretrained(tmp_path / "saved")
    Spans(5).write(tmp_path / "saved" / FOLDER)
    content = read_spec(tmp_path / "saved")
    for spec in (content, {name: value for name, value in content.items() if name != "identifiers"}):
        seal(tmp_path / "saved" / MANIFEST, spec)
        raises(MismatchError, "another corpus", GenerativeRetriever.from_pretrained, tmp_path / "saved")


def test_prefixes_alone_find_the_same(retriever: GenerativeRetriever) -> None:
    parts = (retriever.model, retriever.codec.tokenizer, retriever.corpus)
    short = GenerativeRetriever.assemble(*parts, options=WIDE, form="prefixes", kind=Spans(3))
    assert short.retrieve(queries()[:3], 5) == retriever.retrieve(queries()[:3], 5)


def test_the_commands_make_and_use_it(data: Path, llama: Path, tmp_path: Path, capsys: Capsys) -> None:
    model, folder = of_spans(llama, tmp_path / "llama", 4), tmp_path / "retriever"
    assert main(["index", f"{model}", f"--corpus={data}", f"--output={folder}"]) == 0
    assert " identifiers (spans), " in capsys.readouterr().out
    assert read_kind(folder / FOLDER) == Spans(4)
    given = [str(folder), f"--data={data}", "--search.span_temperature=2"]
    assert main(["retrieve", *given, "--search.beams=30", f"--output={tmp_path / 'run'}"]) == 0
    assert read_json(tmp_path / "run.info.json")["options"]["span_temperature"] == 2
    capsys.readouterr()
    assert main(["tune", *given, "--grid.done_biases=[0]", "--hops.steps=dynamic", "--hops.max=2"]) == 0
    assert read_spec(folder)["search"] == {"span_temperature": 2.0}
    told = fails(
        capsys, "retrieve", str(folder), f"--data={data}", "--search.span_temperature=0",
        f"--output={tmp_path}/x",
    )  # fmt: skip
    assert "--search.span_temperature must be between 0.001 and 1,000,000, got 0" in told
    explained = ("any text", f"--retriever={folder}", "--case.gold=otter-calm")
    assert main(["explain", *explained]) == 0
    assert "passage  otter-calm: " in capsys.readouterr().out


WIDE = SearchOptions(beams=200)  # all spans there are
NEW = [
    Passage("new", "the otter is proud and calm .", "A river"),
    Passage("twin", "the otter is proud and calm .", "A river"), Passage("short", "otter"),
]  # fmt: skip


def made(llama: Path, corpus: Corpus | None = None, **options: Any) -> GenerativeRetriever:
    loaded = CausalLM(str(llama)).load()
    parts = (
        loaded.model.eval(), loaded.tokenizer,
        Corpus.read(llama.parent / "data") if corpus is None else corpus,
    )  # fmt: skip
    return GenerativeRetriever.assemble(*parts, options=WIDE, kind=Spans(3), **options)


def found(retriever: Any, k: int = 8) -> list[list[tuple[str, float]]]:
    return [[(hit.id, round(hit.score, 3)) for hit in hits] for hits in retriever.retrieve(queries()[:3], k)]


def files(folder: Path) -> dict[str, bytes]:
    places = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in places}


def changed(corpus: Corpus, removed: set[str], added: list[Passage]) -> Corpus:
    return Corpus.from_passages([one for one in corpus if one.id not in removed] + added, "changed")


def same_spans(one: Identifiers | None, other: Identifiers | None) -> bool:
    assert one is not None
    assert other is not None
    return one.kind == other.kind and np.array_equal(one.offsets, other.offsets)


@pytest.mark.parametrize(("backend", "memory"), [("array", 2**31), ("flat", 2**31), ("array", 2**12)])
def test_changed_it_is_the_folder_of_an_index_built_anew(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, memory: int
) -> None:
    """Sorted on disk, too."""
    monkeypatch.setattr("grls.index.build.memory_bytes", lambda text: memory)
    retriever = made(llama, backend=backend)
    gone = {retriever.corpus[number].id for number in (0, 3)}
    anew = made(llama, changed(retriever.corpus, gone, NEW), backend=backend)
    retriever.add(NEW)
    retriever.remove(sorted(gone))
    assert (getattr(retriever.index, "files", None) is None) == (memory > 2**12)
    assert same_spans(retriever.spans, anew.spans)
    for one, name in ((retriever, "changed"), (anew, "anew")):
        one.save_pretrained(tmp_path / name)
    assert files(tmp_path / "changed") == files(tmp_path / "anew")


def weighed(
    texts: list[str], probabilities: list[float], passages: list[int], temperature: float = 1.0
) -> PassageScores:
    """Of a search that knows the probability of every span of two words, DONE last, each its own row."""
    spans = Identifiers(
        Spans(2), Corpus.from_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)])
    )
    rows = index_sequences([np.array([3 + n, 1]) for n in range(len(spans) + 1)], 1).rows
    assert [int(row) for row in rows.row_of] == [*range(len(spans) + 1)]
    low = np.arange(len(spans) + 1)
    logs = np.log(np.maximum(probabilities, 1e-300))
    frontier = Frontier(low, low + 1, np.ones_like(low), logs, logs)
    tiers = np.zeros(len(passages), dtype=np.int64)
    return passage_scores(frontier, np.array(passages), tiers, Reach(spans, rows, [], None), temperature)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_views_that_are_equally_likely_make_long_and_short_passages_so(temperature: float) -> None:
    """Of n spans with p / n each a passage has p, and p of it to the power of 1 / T, whatever n is."""
    scores = weighed(["a b c d", "e f"], [0.1] * 4 + [0.2] * 2 + [0.2], [0, 1], temperature)
    assert scores.mean[0] == pytest.approx(scores.mean[1])
    assert scores.mean[0] == pytest.approx(math.log(0.4) / temperature)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_done_is_as_likely_at_every_temperature(temperature: float) -> None:
    scores = weighed(["a b", "c"], [0.05, 0.03, 0.02, 0.9], [0, 1, 2], temperature)
    best = probabilities(ranked(scores, 2, temperature, 5))
    assert best[2] == pytest.approx(0.9)
    assert best[0] + best[1] == pytest.approx(0.1)
    alone = weighed(["a b", "c"], [0.0, 0.0, 0.0, 1.0], [2], temperature)
    assert probabilities(ranked(alone, 2, temperature, 5)) == pytest.approx({2: 1.0})


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("with_done", [False, True])
@pytest.mark.parametrize("with_prior", [False, True])
def test_no_score_or_place_depends_on_k(
    monkeypatch: pytest.MonkeyPatch, temperature: float, with_done: bool, with_prior: bool
) -> None:
    """Before, scores followed k at a temperature other than 1, and passages of more rows came between."""
    monkeypatch.setattr(views_module, "_ROWS", 7)
    monkeypatch.setattr(views_module, "_OF_PRIORS", 2)
    rng = np.random.default_rng(0)
    texts = [" ".join("abcdefgh"[: int(rng.integers(1, 9))]) for _ in range(30)]
    spans = Identifiers(
        Spans(2), Corpus.from_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)])
    )
    rows = index_sequences([np.array([3 + n, 1]) for n in range(len(spans) + 1)], 1).rows
    logs = rng.normal(-4, 2, len(spans) + 1)
    low = np.arange(len(spans) + 1)
    frontier = Frontier(low, low + 1, np.ones_like(low), logs, logs)
    reach = Reach(spans, rows, [] if with_done else [len(texts)], None)
    weights = rng.normal(0, 3, (1, len(texts) + 1))
    prior = Prior((WeightedPrior(lambda numbers: weights[numbers], 1.0),), normalized=False)

    def ranking(k: int) -> list[ScoredPassage]:
        return SpanRanking(reach, k, temperature, prior if with_prior else None)(frontier)

    whole = ranking(len(texts) + 1)
    assert len(whole) == len(texts) + with_done
    scores = [one.score for one in whole]
    assert scores == sorted(scores, reverse=True)
    assert [ranking(k) for k in range(1, 32)] == [whole[:k] for k in range(1, 32)]
