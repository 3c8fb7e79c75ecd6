"""Retrieval by spans: pooled by passage, hop by hop, with filters and priors, on disk."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import fails
from llama_small import write_llama
from models_small import log_probability
from small_data import queries, scratch, write_small

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.spans import SPANS
from grls.data.types import Passage
from grls.decode import ScoredPassage
from grls.decode.prior import Fixed, Prior, WeightedPrior
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.files import read_json, write_json
from grls.models.load.language import CausalLM
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.span_scores import prior_over_spans
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hybrid.priors import EmptyPromptPrior, open_sources
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.weighted import WeightedSource
from grls.retrieve.spec import read_spec, write_spec

WIDE = SearchOptions(beams=100)  # all spans there are


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spans")
    write_llama(folder / "llama", write_small(folder / "data"))
    return folder


@pytest.fixture
def retriever(root: Path) -> GenerativeRetriever:
    loaded = CausalLM(str(root / "llama")).load()
    parts = (loaded.model.eval(), loaded.tokenizer, Corpus.read(root / "data"))
    return GenerativeRetriever.assemble(*parts, options=WIDE, span_words=3)


def every_span(retriever: GenerativeRetriever, query: int = 0) -> list[float]:
    """Log-probabilities of all spans and DONE, one after another: those of equal text have the same."""
    source = retriever.codec.model_input(retriever.encode([queries()[query]])[0])
    numbers = range(len(retriever.index))
    return [log_probability(retriever.model, retriever.index, source, number) for number in numbers]


def probabilities(found: list[ScoredPassage]) -> dict[int, float]:
    return {some.passage: math.exp(some.score) for some in found}


def test_what_may_be_found_has_the_whole_of_spans_that_it_shares_with_what_may_not(root: Path) -> None:
    """The other passages of a row are filtered out, excluded or both: the rest has all that the row has."""
    retriever = sharing(root, ["calm .", "calm .", "the lynx"], beams=10, span_temperature=1.0)
    source, done = retriever.codec.model_input(retriever.encode(queries()[:1])[0]), retriever.done
    two, alone = retriever.subsets(queries()[:2], [["p0", "p2"], ["p2"]])
    for exclude, allow, left in (
        ([done], two, {0, 2}), ([done, 0], None, {1, 2}), ([0], None, {1, 2, done}), ([0, 0], two, {2, done})
    ):  # fmt: skip
        found = probabilities(retriever.search([source], 5, [exclude], allow=[allow])[0])
        assert set(found) == left
        assert sum(found.values()) == pytest.approx(1.0, abs=1e-4)
    assert found == pytest.approx(probabilities(retriever.search([source], 5, [[]], allow=[alone])[0]))


def test_no_fewer_than_one_passage_can_be_asked_for(retriever: GenerativeRetriever) -> None:
    for k in (0, -1):
        with pytest.raises(ConfigError, match="k must be at least 1"):
            retriever.retrieve(queries()[:1], k)


def test_passages_that_share_a_view_have_equal_parts_of_it(root: Path) -> None:
    retriever = sharing(root, ["calm .", "calm .", "the lynx"], beams=10, span_temperature=1.0)
    source = retriever.codec.model_input(retriever.encode(queries()[:1])[0])
    found = probabilities(retriever.search([source], 5, [[retriever.done]])[0])
    assert found[0] == pytest.approx(found[1])
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-4)


def sharing(root: Path, texts: list[str], **options: Any) -> GenerativeRetriever:
    """A retriever over some passages of the small set's words, p0, p1, …"""
    loaded = CausalLM(str(root / "llama")).load()
    corpus = Corpus.from_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)])
    parts = (loaded.model.eval(), loaded.tokenizer, corpus)
    return GenerativeRetriever.assemble(*parts, options=SearchOptions(**options), span_words=3)


@pytest.mark.parametrize("fast", [True, False])
def test_more_passages_are_ranked_than_the_beam_writes(root: Path, fast: bool) -> None:
    texts = ["calm ."] * 40 + ["the lynx is quick .", "the heron ."]
    retriever = sharing(root, texts, beams=1, early_stop=True)
    if not fast:
        retriever.trees = None
    hits = retriever.retrieve(queries()[:2], 50)
    assert [{hit.id for hit in some} for some in hits] == [{f"p{n}" for n in range(42)}] * 2
    assert all(some == sorted(some, key=lambda hit: -hit.score) for some in hits)
    assert [hit.id for hit in retriever.retrieve(queries()[:1], 3)[0]] == [hit.id for hit in hits[0][:3]]


def test_a_passage_in_the_chain_leaves_the_spans_that_others_share(root: Path) -> None:
    retriever = sharing(root, ["the badger is calm .", "badger is calm .", "the lynx"], beams=10)
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


def test_filters_and_removals_are_of_passages(retriever: GenerativeRetriever) -> None:
    some = ["otter-calm", "r0"]
    hits = retriever.retrieve(queries()[:2], 10, some)
    assert all({hit.id for hit in found} == set(some) for found in hits)
    retriever.remove(["r0"])
    assert len(retriever.retrieve(queries()[:1], 20)[0]) == 9
    assert [hit.id for hit in retriever.retrieve(queries()[:1], 10, some)[0]] == ["otter-calm"]


def test_hops_have_whole_passages_as_evidence(retriever: GenerativeRetriever) -> None:
    seen: list[list[int]] = []
    search = retriever.search

    def watched(inputs, *more, **options):  # type: ignore[no-untyped-def]
        seen.extend(inputs)
        return search(inputs, *more, **options)

    retriever.search = watched  # type: ignore[method-assign]
    chain = HopsRetriever(retriever, HopOptions("fixed", 2, chains=1, branch=1)).retrieve_chains(
        queries()[:1]
    )[0][0]
    first, second = chain.hits
    assert first.id != second.id
    passage = retriever.corpus[retriever.corpus.numbers([first.id])[0] or 0]
    expected = retriever.codec.model_input(
        retriever.encode(queries()[:1])[0], retriever.codec.passages([passage])
    )
    assert seen[1] == expected
    dynamic = HopsRetriever(retriever, HopOptions("dynamic", 3, done_bias=50)).retrieve_chains(queries()[:1])[
        0
    ]
    assert dynamic[0].done
    assert len(dynamic[0].hits) == 1


def test_a_prior_of_passages_is_spread_over_their_spans(retriever: GenerativeRetriever) -> None:
    spans = retriever.spans
    assert spans is not None
    weights = np.log(np.arange(1.0, 12.0))[None]  # ten passages and DONE
    part = WeightedPrior(lambda queries: weights[queries], 1.0, Fixed(10, math.log(0.25)))
    (found,) = prior_over_spans(Prior((part,)), spans).parts
    assert found.fixed == Fixed(len(spans), math.log(0.25))
    masses = np.exp(found.log_weights(np.array([0])))[0]
    np.testing.assert_allclose(np.bincount(spans.owners, masses), np.arange(1.0, 12.0))


def test_with_a_prior_it_finds_what_spans_and_prior_say(retriever: GenerativeRetriever) -> None:
    """As weighing all spans afterwards, where the beam holds them all."""
    retriever.options = replace(retriever.options, span_temperature=1.5)
    (source,) = open_sources(retriever.corpus, ["bm25"])
    empty = EmptyPromptPrior(retriever)
    hybrid = HybridRetriever(retriever, [WeightedSource(source, 1.5), WeightedSource(empty, -0.3)])
    own = np.array(every_span(retriever)[:-1])
    own -= math.log(-math.expm1(every_span(retriever)[-1]))  # DONE is hidden
    scores = source.ask(queries()[:1], [()])(np.array([0]))[0] / 2.0
    prior = scores - np.logaddexp.reduce(scores)
    blank = empty.log_probabilities()
    assert len(blank) == len(retriever.corpus)
    plain = GenerativeRetriever.weigh(retriever, [retriever.codec.model_input([])], 10, [[]])[0].plain
    np.testing.assert_allclose(blank, plain[:-1], atol=1e-4)
    said = 1.5 * prior - 0.3 * (blank - np.logaddexp.reduce(blank))
    ids, expected = expected_hits(retriever, own, 1.5, said)
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


def test_saved_and_opened_it_finds_the_same(retriever: GenerativeRetriever, tmp_path: Path) -> None:
    retriever.remove(["r0"])
    retriever.save_pretrained(tmp_path / "saved")
    assert read_json(tmp_path / "saved" / "grls.json")["format"] == 4
    opened = GenerativeRetriever.from_pretrained(tmp_path / "saved", "cpu", options=WIDE)
    assert opened.spans is not None
    assert opened.spans.words == 3
    assert opened.retrieve(queries()[:2], 5) == retriever.retrieve(queries()[:2], 5)


@pytest.mark.parametrize("found", ["8", {"words": 0}, {"words": True}, {}])
def test_a_damaged_manifest_is_named(retriever: GenerativeRetriever, tmp_path: Path, found: object) -> None:
    retriever.save_pretrained(tmp_path / "saved")
    manifest = tmp_path / "saved" / "grls.json"
    write_json(manifest, read_json(manifest) | {"spans": found})
    with pytest.raises(DataError, match=r"grls\.json.*length of spans"):
        GenerativeRetriever.from_pretrained(tmp_path / "saved")


def test_spans_of_another_length_do_not_belong_to_the_index(
    retriever: GenerativeRetriever, tmp_path: Path
) -> None:
    retriever.save_pretrained(tmp_path / "saved")
    manifest = tmp_path / "saved" / "grls.json"
    content = read_json(manifest)
    for spans in ({"words": 5}, None):
        write_json(manifest, content | {"spans": spans})
        with pytest.raises(MismatchError, match="index"):
            GenerativeRetriever.from_pretrained(tmp_path / "saved")


def test_an_empty_corpus_is_refused(retriever: GenerativeRetriever) -> None:
    parts = (retriever.model, retriever.codec.tokenizer, Corpus.from_passages([]))
    with pytest.raises(DataError, match="the corpus is empty"):
        GenerativeRetriever.assemble(*parts, span_words=3)


def test_prefixes_alone_find_the_same(retriever: GenerativeRetriever) -> None:
    parts = (retriever.model, retriever.codec.tokenizer, retriever.corpus)
    short = GenerativeRetriever.assemble(*parts, options=WIDE, form="prefixes", span_words=3)
    assert short.retrieve(queries()[:3], 5) == retriever.retrieve(queries()[:3], 5)
    assert [short._sequence(n).tolist() for n in (0, len(short.index) - 1)] == [
        retriever.index.tokens(n).tolist() for n in (0, len(short.index) - 1)
    ]


def test_the_commands_make_and_use_it(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, model, folder = root / "data", root / "llama", tmp_path / "retriever"
    command = ["index", f"{model}", f"--corpus={data}", f"--output={folder}"]
    write_json(model / SPANS, {"words": 4})  # as training writes it
    try:
        assert main(command) == 0
    finally:
        (model / SPANS).unlink()
    assert "10 passages, " in (out := capsys.readouterr().out)
    assert " spans of 4 words, " in out
    retrieve = [
        "retrieve", str(folder), f"--data={data}", "--search.beams=30", "--search.span_temperature=2",
        f"--output={tmp_path / 'run'}",
    ]  # fmt: skip
    assert main(retrieve) == 0
    assert read_json(tmp_path / "run.info.json")["options"]["span_temperature"] == 2
    assert main(["evaluate", f"{tmp_path / 'run'}.jsonl", f"--data={data}", "--split=test"]) == 0
    assert main([*command, "--index.span_words=2"]) == 0
    assert " spans of 2 words, " in capsys.readouterr().out
    whole = [*command[:-1], "--index.span_words=0", f"--output={tmp_path / 'whole'}"]
    write_json(model / SPANS, {"words": 4})
    try:
        assert main(whole) == 0
    finally:
        (model / SPANS).unlink()
    assert "spans of" not in capsys.readouterr().out
    capsys.readouterr()
    hybrid = tmp_path / "hybrid"
    write_spec(hybrid, "hybrid", {"generator": "../retriever", "priors": [{"retriever": "bm25"}]})
    tune = ["tune", str(hybrid), f"--data={data}", "--grid.prior_weights=[1]", "--search.span_temperature=2"]
    assert main(tune) == 0
    assert "empty prompt" not in capsys.readouterr().out  # unless it is asked for
    write_spec(tmp_path / "none", "hybrid", {"generator": "../retriever", "priors": []})
    assert "nothing to tune" in fails(capsys, "tune", tmp_path / "none", f"--data={data}")
    assert main([*tune, "--grid.empty_weights=[0.1]"]) == 0
    assert read_spec(hybrid)["search"] == {"span_temperature": 2.0}
    assert main(["retrieve", str(hybrid), *retrieve[2:4], retrieve[-1]]) == 0
    assert read_json(tmp_path / "run.info.json")["options"]["span_temperature"] == 2
    dynamic = [str(folder), f"--data={data}", "--grid.done_biases=[0]", "--search.span_temperature=2"]
    assert main(["tune", *dynamic, "--hops.steps=dynamic", "--hops.max=2"]) == 0
    assert read_spec(folder)["search"] == {"span_temperature": 2.0}
    told = fails(capsys, *retrieve, "--search.span_temperature=0")
    assert "--search.span_temperature must be between 0.001 and 1,000,000, got 0" in told
    passage = "otter-calm"
    capsys.readouterr()
    assert main(["explain", "any text", f"--retriever={folder}", f"--case.gold={passage}"]) == 0
    assert f"passage  {passage}: " in capsys.readouterr().out
    widest = (f"--retriever={folder}", f"--case.gold={passage}", "--case.widest=4")
    assert "--case.widest has no meaning there" in fails(capsys, "explain", "any text", *widest)


def test_a_biencoder_has_no_spans(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["index", "--kind=dense", f"{root / 'llama'}", f"--corpus={root / 'data'}"]
    error = fails(capsys, *command, "--index.span_words=3", f"--output={tmp_path / 'x'}")
    assert "no --index.span_words; it reads whole passages" in error


def test_a_t5_writes_spans_too(root: Path) -> None:
    loaded = scratch(root / "data").load()
    torch.manual_seed(0)
    found = GenerativeRetriever.assemble(
        loaded.model.eval(), loaded.tokenizer, Corpus.read(root / "data"), options=WIDE, span_words=3
    ).retrieve(queries()[:1], 10)[0]
    assert len({hit.id for hit in found}) == 10
