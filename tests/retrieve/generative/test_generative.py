"""Generative retrievers, causal ones, unique prefixes, rescoring: found, saved, refused where mixed up."""

import json
import math
import re
import shutil
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import fails, raises
from fixture_types import Capsys
from small_data import passages, queries, scratch, small_retriever, small_tokenizer, write_small

from grls.cli import main
from grls.data.codec import SPECIAL_TOKENS, Limits
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.decode.beam import ScoredPassage
from grls.errors import DataError, GrlsError, MismatchError
from grls.evaluation.evaluate import evaluate_run
from grls.identifiers.spans import Spans
from grls.index.build import build_index
from grls.io.seal import seal
from grls.models.head import RescoreInput, read_rescore_input
from grls.models.load.generators import CausalLM, Pretrained
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever, rescored
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hops.stop import DoneByLogOdds
from grls.retrieve.hybrid.priors import WeightedSource, open_sources
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.spec import MANIFEST, read_spec, update_spec

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?")]


@pytest.fixture(scope="module")
def retriever(data: Path) -> GenerativeRetriever:
    return small_retriever(data)


@pytest.fixture(scope="module")
def original(retriever: GenerativeRetriever, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "retriever"
    retriever.save_pretrained(folder)
    return folder


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "retriever"))


def test_a_round_trip_changes_no_hit(retriever: GenerativeRetriever, saved: Path) -> None:
    back = GenerativeRetriever.from_pretrained(saved, device="cpu")
    assert back.retrieve(QUERIES, 5) == retriever.retrieve(QUERIES, 5)
    assert list(back.corpus) == passages()
    assert back.codec.limits == retriever.codec.limits
    assert sorted(f.name for f in saved.iterdir()) == ["corpus.jsonl", "grls.json", "index", "model"]
    assert not [f for f in saved.rglob("*") if f.suffix in (".bin", ".pkl", ".pt")], "no pickle"


@pytest.mark.parametrize("part", ["seq2seq", "causal"])
def test_a_model_is_tried_again_only_with_another_version_or_config(
    retriever: GenerativeRetriever, causal: GenerativeRetriever, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, part: str,
) -> None:  # fmt: skip
    saved, trials = tmp_path / "saved", list[Any]()
    (causal if part == "causal" else retriever).save_pretrained(saved)
    monkeypatch.setattr("grls.models.sessions.memory.trees_agree", trials.append)  # None: it does not agree
    assert GenerativeRetriever.from_pretrained(saved, device="cpu").trees is not None
    assert not trials
    known = read_spec(saved)["tried"]
    for tried in (None, *({**known, name: "0"} for name in known)):
        update_spec(saved, {"tried": tried})
        opened = GenerativeRetriever.from_pretrained(saved, device="cpu")
        assert opened.trees is None, tried
    assert len(trials) == len(known) + 1
    opened.save_pretrained(tmp_path / "unfit")
    assert "tried" not in read_spec(tmp_path / "unfit")


def test_a_precision_opens_and_finds(retriever: GenerativeRetriever, saved: Path) -> None:
    opened = GenerativeRetriever.from_pretrained(saved, device="cpu", precision="auto")
    for found, expected in zip(opened.retrieve(QUERIES, 5), retriever.retrieve(QUERIES, 5), strict=True):
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=0.03)


@pytest.mark.parametrize(("file", "change", "message"), [
    ("grls.json", {"format": 99}, "format 99, and this version reads 6: install a newer grls"),
    ("grls.json", {"format": 5}, "format 5: it was made by a version before 0.2; build it again"),
    ("index/index.json", {"format": 99}, "this version reads 3: install a newer grls"),
    ("index/index.json", {"format": 1}, "format 1: it was made by a version before 0.2; build it again"),
    ("index/index.json", {"backend": "btree"}, "this version reads array, "),
])  # fmt: skip
def test_another_format_is_refused(saved: Path, file: str, change: dict[str, Any], message: str) -> None:
    seal(saved / file, json.loads((saved / file).read_text()) | change)
    seal(saved / MANIFEST, read_spec(saved))
    raises(GrlsError, message, GenerativeRetriever.from_pretrained, saved, device="cpu")


def test_another_corpus_is_refused(saved: Path) -> None:
    some = Corpus.from_passages(passages()[:-1])
    some.write(saved / "corpus.jsonl")
    seal(saved / MANIFEST, read_spec(saved))
    raises(MismatchError, r"another corpus.*grls index", GenerativeRetriever.from_pretrained, saved)


def test_another_tokenizer_is_refused(saved: Path, tmp_path: Path) -> None:
    small_tokenizer(write_small(tmp_path / "data"), 60).save_pretrained(saved / "model")
    seal(saved / MANIFEST, read_spec(saved))
    raises(MismatchError, r"another tokenizer.*grls index", GenerativeRetriever.from_pretrained, saved)


def test_long_queries_are_refused_or_cut(data: Path, corpus: Corpus) -> None:
    parts = (*scratch(data).load()[:2], corpus, Limits(query=3))
    with pytest.raises(DataError, match=r"query 'a' has .* the limit is 3: its end .* would be cut"):
        GenerativeRetriever.assemble(*parts).retrieve(QUERIES, 2)
    cutting = GenerativeRetriever.assemble(*parts, options=SearchOptions(truncate_queries=True))
    assert [len(hits) for hits in cutting.retrieve(QUERIES, 2)] == [2, 2]


def test_a_copy_that_is_added_to_leaves_the_original_as_it_is(retriever: GenerativeRetriever) -> None:
    """Both have the same decoders, which keep one search."""
    expected = retriever.retrieve(QUERIES, 11)
    other = copy(retriever)
    other.add([Passage("new", "the otter is proud .")])
    assert "new" in {hit.id for hits in other.retrieve(QUERIES, 11) for hit in hits}
    assert retriever.retrieve(QUERIES, 11) == expected


@pytest.fixture
def causal(data: Path, llama: Path) -> GenerativeRetriever:
    loaded = CausalLM(str(llama)).load()
    return GenerativeRetriever.assemble(
        loaded.model.eval(), loaded.tokenizer, Corpus.read(data), options=SearchOptions(beams=4)
    )


def test_markers_begin_with_the_meaning_of_a_word(llama: Path) -> None:
    bare = Pretrained(str(llama)).load()  # adds them, too
    weight = bare.model.get_input_embeddings().weight
    ids = [bare.tokenizer.get_vocab()[marker] for marker in SPECIAL_TOKENS]
    assert len({tuple(weight[i].tolist()) for i in ids}) == 4
    done = bare.tokenizer(" done", add_special_tokens=False)["input_ids"]
    torch.testing.assert_close(weight[ids[3]], weight[done].mean(0))
    assert bare.tokenizer.pad_token_id is not None
    assert bare.model.get_output_embeddings().weight is weight  # they stay tied


def test_scores_are_those_of_the_language_model(causal: GenerativeRetriever) -> None:
    causal.options = SearchOptions(beams=10, mode="full", early_stop=False)
    query = queries()[0]
    source = causal.codec.model_input(causal.encode([query])[0])
    assert source[-1] == causal.codec.evidence
    for hit in causal.retrieve([query], 10)[0]:
        number = causal.corpus.numbers([hit.id])[0]
        assert number is not None
        tokens = causal.index.tokens(number).tolist()
        with torch.no_grad():
            logits = causal.model(input_ids=torch.tensor([source + tokens[:-1]])).logits[0]
        steps = logits[len(source) - 1 :].log_softmax(-1)
        expected = sum(float(steps[place, token]) for place, token in enumerate(tokens))
        assert hit.score == pytest.approx(expected, rel=1e-4)


def test_the_input_of_a_hop_is_the_beginning_of_the_next_ones(causal: GenerativeRetriever) -> None:
    codec = causal.codec
    query = causal.encode(queries()[:1])[0]
    rows = [causal.index.tokens(n) for n in (0, 3)]
    inputs = [codec.model_input(query, rows[:n]) for n in range(3)]
    for n in range(2):
        assert inputs[n + 1] == [*inputs[n], *rows[n][:-1].tolist(), codec.evidence]


@pytest.fixture(scope="module")
def folders(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("prefixes")
    whole = small_retriever(data)
    index = build_index(whole.corpus, whole.codec, form="prefixes")
    made = {"whole": whole, "prefixes": GenerativeRetriever(whole.model, whole.codec, whole.corpus, index)}
    for form, retriever in made.items():
        retriever.save_pretrained(place / form)
    return {form: place / form for form in made} | {"data": data}


def opened(folders: dict[str, Path], form: str, **options: object) -> GenerativeRetriever:
    return GenerativeRetriever.from_pretrained(folders[form], "cpu", options=SearchOptions(**options))


@pytest.mark.parametrize("options", [{}, {"mode": "full", "early_stop": True}])
def test_retrieval_finds_the_same(folders: dict[str, Path], options: dict[str, object]) -> None:
    whole, prefixes = (opened(folders, form, **options) for form in ("whole", "prefixes"))
    assert prefixes.index.rows.form == "prefixes"
    assert len(prefixes.index.rows.tokens) < len(whole.index.rows.tokens)
    assert prefixes.retrieve(queries(), 5) == whole.retrieve(queries(), 5)


def test_filters_and_removals_find_the_same(folders: dict[str, Path], tmp_path: Path) -> None:
    found = {}
    for form in ("whole", "prefixes"):
        retriever = opened(folders, form, beams=12)
        few = ["otter-calm", "lynx-quick", "r1"]
        filtered = retriever.retrieve(queries(), 5, few)
        retriever.remove(["r0", "otter-calm"])
        retriever.save_pretrained(tmp_path / form)
        back = GenerativeRetriever.from_pretrained(tmp_path / form, "cpu", options=retriever.options)
        hops = [
            HopsRetriever(some, HopOptions("dynamic", 3)).retrieve_chains(queries()[:4], allow)
            for some in (retriever, back)
            for allow in (None, few[1:])
        ]
        left = [some.retrieve(queries(), 5) for some in (retriever, back)]
        assert back.index.rows.form == form
        assert (hops[:2], left[0]) == (hops[2:], left[1])
        found[form] = filtered, hops, left
    assert found["whole"] == found["prefixes"]


def test_the_command_sorts_in_memory_or_on_disk(
    folders: dict[str, Path], tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["index", f"{folders['whole'] / 'model'}", f"--corpus={folders['data']}", "--index.form=prefixes"]
    monkeypatch.setattr("grls.index.build.SMALLEST_MEMORY", 1)
    for name, options in (("a", []), ("b", ["--index.memory=1KB"])):
        assert main([*given, f"--output={tmp_path / name}", *options]) == 0
        assert "tokens of unique prefixes" in capsys.readouterr().out
    files = [{f.name: f.read_bytes() for f in (tmp_path / name / "index").iterdir()} for name in "ab"]
    assert files[0] == files[1]
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a", "b"]  # nothing of the sort is left
    assert "such as 500MB" in fails(capsys, *given, f"--output={tmp_path / 'c'}", "--index.memory=much")


def rereading(data: Path, llama: Path, words: int | None = None, **options: Any) -> GenerativeRetriever:
    loaded = CausalLM(str(llama)).load()
    return GenerativeRetriever.assemble(
        loaded.model.eval(), loaded.tokenizer, Corpus.read(data), rescore_input=RescoreInput(4),
        options=SearchOptions(beams=10, **options), kind=words and Spans(words),
    )  # fmt: skip


def test_candidates_keep_their_probability_together() -> None:
    found = [
        ScoredPassage(7, math.log(0.4)), ScoredPassage(2, math.log(0.3)), ScoredPassage(5, math.log(0.1)),
        ScoredPassage(1, -9.0),
    ]  # fmt: skip
    ranked = rescored(found, np.array([0.0, 1.0, 2.0]), 0.5)
    weights = {7: 0.4, 2: 0.3 * math.exp(0.5), 5: 0.1 * math.e}
    share = 0.8 / sum(weights.values())
    expected = {passage: math.log(weight * share) for passage, weight in weights.items()} | {1: -9.0}
    low = rescored([*found[:3], ScoredPassage(1, -0.5)], np.array([0.0, 1.0, 2.0]), 0.5)
    assert low[3] == ScoredPassage(1, low[2].score)  # what was not read comes last
    assert [some.passage for some in ranked] == [2, 7, 5, 1]
    for some in ranked:
        assert some.score == pytest.approx(expected[some.passage])
    assert rescored(found, np.array([3.0, 1.0, 2.0]), 0.0) == [
        ScoredPassage(some.passage, pytest.approx(some.score)) for some in found
    ]
    assert rescored(found, np.array([]), 1.0) == found
    assert rescored([], np.array([]), 1.0) == []


def log_odds(retriever: GenerativeRetriever, source: list[int], number: int) -> float:
    """By transformers' own forward pass, with four tokens of the passage."""
    corpus, codec = retriever.corpus, retriever.codec
    row = codec.done_sequence if number == len(corpus) else codec.passages(corpus.passages([number]))[0]
    body = [token for token in row.tolist() if token != codec.end][:4]
    with torch.no_grad():
        logits = retriever.model(input_ids=torch.tensor([[*source, *body, codec.end]])).logits[0, -1]
    return float(logits[codec.evidence] - logits[codec.question])


@pytest.mark.parametrize("words", [None, 3])
def test_what_is_found_is_ranked_by_both(data: Path, llama: Path, words: int | None) -> None:
    retriever = rereading(data, llama, words)
    plain = retriever.retrieve(queries()[:5], 10)
    retriever.options = SearchOptions(beams=10, rescore=4, rescore_weight=2.0)
    moved = 0
    for query, own, found in zip(queries()[:5], plain, retriever.retrieve(queries()[:5], 3), strict=True):
        source = retriever.codec.model_input(retriever.encode([query])[0])
        numbers = [n for n in retriever.corpus.numbers([hit.id for hit in own[:4]]) if n is not None]
        odds = np.array([log_odds(retriever, source, number) for number in numbers])
        both = np.array([hit.score for hit in own[:4]]) + 2.0 * odds
        best = [own[n].id for n in np.argsort(-both)]
        assert [hit.id for hit in found] == best[:3]
        moved += best[0] != own[0].id
    assert moved  # rescores change something here


@pytest.mark.parametrize("words", [None, 3])
def test_a_ranking_is_the_same_however_many_are_asked_for(data: Path, llama: Path, words: int | None) -> None:
    retriever = rereading(data, llama, words, rescore=4, rescore_weight=5.0)
    for few, many in zip(
        retriever.retrieve(queries()[:5], 3), retriever.retrieve(queries()[:5], 9), strict=True
    ):
        assert [hit.id for hit in many[:3]] == [hit.id for hit in few]
        scores = [hit.score for hit in many]
        assert scores == sorted(scores, reverse=True)


def test_filters_removals_and_priors_go_with_it(data: Path, llama: Path) -> None:
    retriever = rereading(data, llama, rescore=6, rescore_weight=2.0)
    some = [passage.id for passage in retriever.corpus][:3]
    (found,) = retriever.retrieve(queries()[:1], 9, allow=some)
    assert {hit.id for hit in found} == set(some)
    retriever.remove(some[:1])
    assert some[0] not in {hit.id for hit in retriever.retrieve(queries()[:1], 10)[0]}
    (source,) = open_sources(retriever.corpus, ["bm25"], "cpu")
    for normalized in (False, True):
        hybrid = HybridRetriever(retriever, [WeightedSource(source, 0.5)], normalized=normalized)
        retriever.options = SearchOptions(beams=10)
        (plain,) = hybrid.retrieve(queries()[:1], 9)
        retriever.options = SearchOptions(beams=10, rescore=4, rescore_weight=2.0)
        (both,) = hybrid.retrieve(queries()[:1], 9)
        assert {hit.id for hit in both[:4]} == {hit.id for hit in plain[:4]}
        assert [hit.id for hit in both[4:]] == [hit.id for hit in plain[4:]]
        assert [hit.id for hit in both] != [hit.id for hit in plain]


def test_done_is_rescored_in_chains(data: Path, llama: Path) -> None:
    retriever = rereading(data, llama)
    source = retriever.codec.model_input(retriever.encode(queries()[:1])[0])
    (odds,) = retriever.rescore([source], [[3, retriever.done]])
    expected = [log_odds(retriever, source, number) for number in (3, retriever.done)]
    np.testing.assert_allclose(odds, expected, rtol=1e-3, atol=1e-3)
    lengths = {}
    for weight in (0.0, 1e3):
        retriever.options = SearchOptions(beams=10, rescore=11, rescore_weight=weight)
        chains = HopsRetriever(retriever, HopOptions("dynamic", 3)).retrieve_chains(queries()[:4])
        assert all(chain.score <= 1e-6 for some in chains for chain in some)  # still log-probabilities
        lengths[weight] = [[hit.id for hit in some[0].hits] for some in chains]
    assert lengths[0.0] != lengths[1e3]


class AtOnce(DoneByLogOdds):
    def may_end(self, hop: int) -> bool:
        return True


def test_a_bias_brings_back_a_done_that_rescoring_put_behind(data: Path, llama: Path) -> None:
    """It is known from all that was rescored, however few beams and branches there are."""
    retriever = rereading(data, llama, 3, rescore=11, rescore_weight=1.0)
    retriever.options = replace(retriever.options, beams=2)
    source = retriever.codec.model_input(retriever.encode(queries()[:1])[0])
    (found,) = retriever.search([source], 11, [[]])
    place = next(n for n, hit in enumerate(found) if hit.passage == retriever.done)
    assert place >= 2  # behind what branch and beams would take
    hops = HopsRetriever(retriever, HopOptions("dynamic", branch=2))
    hops.hop_search.stop = AtOnce(200.0)
    chains = hops.retrieve_chains(queries()[:1])
    assert [(chain.done, len(chain.hits)) for chain in chains[0][:1]] == [(True, 0)]


def test_the_folder_remembers_how_passages_are_rescored(data: Path, llama: Path, tmp_path: Path) -> None:
    retriever = rereading(data, llama)
    retriever.save_pretrained(tmp_path / "kept")
    again = GenerativeRetriever.from_pretrained(tmp_path / "kept", options=SearchOptions(beams=10, rescore=4))
    assert again.rescore_input == RescoreInput(4)
    retriever.options = again.options
    assert again.retrieve(queries()[:3], 3) == retriever.retrieve(queries()[:3], 3)
    file = tmp_path / "kept" / "grls.json"
    update_spec(file.parent, {"rescore": {"tokens": 0}})
    with pytest.raises(DataError, match=r'expected how much is read to rescore as \{"tokens": 128\}'):
        GenerativeRetriever.from_pretrained(tmp_path / "kept")
    assert read_rescore_input(None, file) is None


def test_the_weight_is_tuned_and_written_for_retrieve(
    data: Path, llama: Path, tmp_path: Path, capsys: Capsys
) -> None:
    kept = tmp_path / "kept"
    rereading(data, llama).save_pretrained(kept)
    command = ["tune", str(kept), f"--data={data}", "--grid.rescore_passages=4", "--search.beams=6"]
    assert main([*command, "--grid.k=2", "--grid.rescore_weights=[0.5, 1, 2]"]) == 0
    told = capsys.readouterr().out
    tried = [float(line.split()[1]) for line in told.splitlines() if line.startswith("  recall@2")]
    assert len(tried) == 4
    gain = re.search(r"^rescoring: recall@2 ([0-9.]+) -> ([0-9.]+) \((.+)\), ", told, re.MULTILINE)
    assert gain is not None
    assert (float(gain[1]), float(gain[2])) == (tried[0], max(tried))
    assert main(["retrieve", str(kept), f"--data={data}", "--split=dev", "--k=2",
                 f"--output={tmp_path / 'run'}"]) == 0  # fmt: skip
    found = evaluate_run(f"{tmp_path / 'run'}.jsonl", str(data), "dev", (2,))
    assert 100 * found["sequence_recall"]["recall@2"] == pytest.approx(max(tried), abs=0.06)
    info = json.loads((tmp_path / "run.info.json").read_text())
    rescored_passages = info["options"].get("rescore", 0) > 0
    assert rescored_passages == (gain[3] != "none")
    assert info["options"]["beams"] == 6
    assert info["score_mode"] == ("renormalized, rescored" if rescored_passages else "renormalized")
