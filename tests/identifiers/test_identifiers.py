"""Identifiers of every kind: trained on, indexed, searched in all ways, changed; codes by hand; bad input."""

import json
import math
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import fails, raises
from fixture_types import Capsys
from llama_small import save_llama, write_llama
from models_small import log_probability
from small_data import passages, queries, tiny_bert, write_jsonl, write_small
from train_helpers import SHORT, logged

from grls.api.identify import identify
from grls.cli import main
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.identifiers import (
    FOLDER,
    KINDS,
    IdentifierKind,
    Identifiers,
    identifier_kind,
    make_identifiers,
    read_kind,
    register_identifiers,
)
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, MismatchError
from grls.identifiers.codes import Codes, _numeral
from grls.identifiers.field import Field
from grls.identifiers.keywords import Keywords
from grls.identifiers.union import Union
from grls.io.arguments import options
from grls.models.load.build import add_rows
from grls.models.load.generators import CausalLM
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.folder_check import check_folder
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.hybrid.priors import WeightedSource
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import read_spec
from grls.train.core.module import GeneratorModule
from grls.train.options import ModelOptions


@options("options")
class LastWords(IdentifierKind):
    """The last words of a passage: a kind of a user."""

    words: int = 3

    def identify(self, corpus: Corpus) -> Iterator[list[str]]:  # type: ignore[override]
        for passage in corpus:
            yield [" ".join(passage.text.split()[-self.words :])]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data set with titles and tags, pseudo-queries, a bi-encoder, a causal model; ``last`` is a kind."""
    folder = write_small(tmp_path_factory.mktemp("place") / "data").parent
    lines = [json.loads(line) for line in (folder / "data" / "corpus.jsonl").read_text().splitlines()]
    for n, line in enumerate(lines):
        line |= {"title": line["_id"].replace("-", " "), "metadata": {"tags": [line["_id"], f"{n % 3}"]}}
    write_jsonl(folder / "data" / "corpus.jsonl", lines)
    asked = [(f"{line['_id']}-{n}", f"{n} {line['text']}", line["_id"]) for line in lines for n in "ab"]
    write_jsonl(folder / "asked.jsonl", [{"_id": i, "text": t, "evidence": [p]} for i, t, p in asked])
    write_llama(folder / "llama", folder / "data")
    tiny_bert(folder / "bert")
    register_identifiers("last", f"{__name__}:LastWords")
    yield folder
    del KINDS["last"]


def made(place: Path, name: str) -> IdentifierKind:
    """The kind of a name, with options for the small corpus, that has learned from it."""
    book = {"encoder": str(place / "bert"), "levels": 2, "size": 3}
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "spans": ("spans", {"words": 3}),
        "title": ("field", {}),
        "tags": ("field", {"field": "tags"}),
        "keywords": ("keywords", {"words": 2}),
        "queries": ("queries", {"file": str(place / "asked.jsonl")}),
        "residual": ("codes", book),
        "product": ("codes", book | {"method": "product"}),
        "tree": ("codes", book | {"method": "hierarchical", "size": 2, "leaf": 3}),
        "union": ("union", {"of": [str(place / "ids-title"), str(place / "ids-residual")]}),
        "last": ("last", {}),
    }
    kind, folder = identifier_kind(*given[name]), place / f"ids-{name}"
    if name == "union":
        made(place, "title"), made(place, "residual")
    make_identifiers(kind, Corpus.read(place / "data"), folder)
    assert read_kind(folder).fingerprint == kind.fingerprint
    return read_kind(folder)


SEVERAL = {"spans", "tags", "queries", "union"}
WIDE = SearchOptions(beams=100)
NEW = [
    {
        "_id": "new",
        "title": "stoat calm",
        "text": "the stoat is calm .",
        "metadata": {"tags": ["new"], "queries": ["who ?"]},
    }
]


def over(place: Path, kind: IdentifierKind, corpus: Corpus | None = None) -> GenerativeRetriever:
    """A retriever with a random model that has the rows of the kind."""
    loaded = CausalLM(str(place / "llama")).load()
    torch.manual_seed(0)
    add_rows(*loaded, kind.vocabulary)
    parts = (loaded.model.eval(), loaded.tokenizer, corpus or Corpus.read(place / "data"))
    return GenerativeRetriever.assemble(*parts, options=WIDE, kind=kind)


def found(retriever: Any, k: int = 12) -> list[list[tuple[str, float]]]:
    return [[(hit.id, round(hit.score, 3)) for hit in hits] for hits in retriever.retrieve(queries()[:3], k)]


@pytest.mark.parametrize(
    "name", ["spans", "title", "tags", "keywords", "queries", "residual", "product", "tree", "union", "last"]
)
def test_a_generator_of_any_identifiers_is_searched_and_changed(
    place: Path, name: str, tmp_path: Path, capsys: Capsys
) -> None:
    kind = made(place, name)
    retriever = over(place, kind)
    assert (retriever.spans is not None) == (name in SEVERAL)
    retriever.save_pretrained(tmp_path / "r")
    opened: Any = load_retriever(tmp_path / "r", Opening("cpu", search=WIDE))
    assert found(opened) == found(retriever)
    assert opened.fingerprint() == retriever.fingerprint()
    assert {len(hits) for hits in found(opened)} == {10}
    if name not in SEVERAL:  # each passage by the probability of its one identifier
        source = opened.codec.model_input(opened.encode(queries()[:1])[0])
        each = [log_probability(opened.model, opened.index, source, n) for n in range(10)]
        ids = opened.corpus.ids([*range(10)])
        hidden = math.log(-math.expm1(log_probability(opened.model, opened.index, source, 10)))  # DONE
        assert dict(found(opened)[0]) == pytest.approx(
            {i: score - hidden for i, score in zip(ids, each, strict=True)}, abs=2e-3
        )
    # filters, priors, hops, explanations, checks
    allowed = opened.retrieve(queries()[:3], 5, ["r0", "r1"])
    assert all({hit.id for hit in hits} == {"r0", "r1"} for hits in allowed)
    hybrid = HybridRetriever(opened, [WeightedSource(BM25Retriever(opened.corpus), 2.0)])
    assert found(hybrid) != found(opened)
    ranked = found(hop_by_hop(hybrid, HopOptions("ranked", max=2)), 5)
    assert [len({i for i, _ in hits}) for hits in ranked] == [5] * 3
    for steps, one in (("fixed", opened), ("dynamic", hybrid)):
        hops: Any = hop_by_hop(one, HopOptions(steps, max=3))
        chains = [[hit.id for hit in best[0].hits] for best in hops.retrieve_chains(queries()[:3])]
        assert all(len({*ids}) == len(ids) for ids in chains)
        assert steps == "dynamic" or {*map(len, chains)} == {3}
    assert main(["explain", "any text", f"--retriever={tmp_path / 'r'}", "--case.gold=r0"]) == 0
    assert "r0" in capsys.readouterr().out
    assert check_folder(tmp_path / "r").faults == []
    # an added passage has its identifier without training; the others keep theirs
    write_jsonl(tmp_path / "new.jsonl", NEW)
    (tmp_path / "gone.txt").write_text("r1\n")
    changes = [f"--add={tmp_path / 'new.jsonl'}", f"--remove={tmp_path / 'gone.txt'}"]
    assert main(["index", "update", str(tmp_path / "r"), *changes]) == 0
    again: Any = load_retriever(tmp_path / "r", Opening("cpu", search=WIDE))
    assert {i for i, _ in found(again)[0]} == {*(p.id for p in passages()), "new"} - {"r1"}
    assert found(again) == found(over(place, again.identifiers.kind, again.corpus))
    assert check_folder(tmp_path / "r").faults == []


def naive(vectors: np.ndarray, centroids: np.ndarray) -> list[int]:
    """The nearest centroid of each vector, one distance at a time."""
    return [int(np.argmin([((vector - one) ** 2).sum() for one in centroids])) for vector in vectors]


def fitted(method: str, vectors: np.ndarray, **options: Any) -> Codes:
    """Codes of vectors that no encoder made."""
    kind = Codes("none", method, **options)  # type: ignore[arg-type]
    if method == "hierarchical":
        kind._grow(vectors)
    else:
        kind.state["centroids"] = kind._quantized(vectors)[1]
    return kind


VECTORS = np.random.default_rng(3).normal(size=(60, 6)).astype(np.float32)


def test_residual_codes_are_the_nearest_centroids_of_what_is_left() -> None:
    kind = fitted("residual", VECTORS, levels=3, size=5)
    rest, errors = VECTORS.copy(), [float((VECTORS**2).sum())]
    for level, column in enumerate(kind.encode(VECTORS).T.tolist()):
        centroids = kind.state["centroids"][level]
        assert column == naive(rest, centroids)
        rest = rest - centroids[column]
        errors.append(float((rest**2).sum()))
    assert errors == sorted(errors, reverse=True)  # each level says more
    assert len(set(errors)) == 4


def test_product_codes_are_the_nearest_centroids_of_each_part() -> None:
    kind = fitted("product", VECTORS, levels=3, size=5)
    for level, column in enumerate(kind.encode(VECTORS).T.tolist()):
        assert column == naive(VECTORS[:, 2 * level : 2 * level + 2], kind.state["centroids"][level])


def test_paths_in_a_tree_are_the_nearest_clusters_and_places_in_a_leaf_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No leaf has more passages than it may; one that is full takes more by a longer number."""
    kind = fitted("hierarchical", VECTORS, size=3, leaf=4)
    paths = kind.encode(VECTORS)
    for vector, path in zip(VECTORS, paths.tolist(), strict=True):
        node = 0
        for n in filter(lambda n: n >= 0, path):
            among = kind.state["centroids"][node][kind.state["children"][node] > -2]
            assert n == naive(vector[None], among)[0]
            node = int(kind.state["children"][node][n])
        assert node == -1
    corpus = Corpus.from_passages([Passage(f"{n}", "a text") for n in range(60)])
    kind._take(corpus, VECTORS)
    codes = [one for (one,) in kind.identify(corpus)]
    assert len(set(codes)) == 60
    assert {name for code in codes for name in code} <= set(kind.vocabulary)
    assert max(np.unique(paths, axis=0, return_counts=True)[1]) <= 4
    twins = Corpus.from_passages([Passage(f"twin-{n}", "a text") for n in range(9)])
    kind._take(twins, VECTORS[[0] * 9])
    both = [one for (one,) in kind.identify(corpus.extended(twins))]
    assert both[:60] == codes
    assert len(set(both)) == 69
    assert [_numeral(n, 3) for n in range(7)] == [[0], [1], [2], [0, 0], [0, 1], [0, 2], [1, 0]]


def test_equal_vectors_end_in_one_leaf() -> None:
    kind = fitted("hierarchical", np.ones((20, 6), dtype=np.float32), size=2, leaf=4)
    assert len(np.unique(kind.encode(np.ones((3, 6), dtype=np.float32)), axis=0)) == 1


def test_the_rarest_words_come_first() -> None:
    texts = ["the otter eats fish", "the otter sleeps", "the owl eats mice", "the the"]
    corpus = Corpus.from_passages([Passage(f"{n}", text) for n, text in enumerate(texts)])
    kind = Keywords(2)
    kind.learn(corpus)
    assert [*kind.identify(corpus)] == [["fish otter"], ["sleeps otter"], ["owl mice"], ["the the"]]
    added = Corpus.from_passages([Passage("new", "otter walrus eats", "Owl")])
    assert [*kind.identify(added)] == [["walrus Owl"]]


@pytest.mark.parametrize("stage", ["chains", "memorise"])
@pytest.mark.parametrize("name", ["residual", "queries"])
def test_a_training_learns_them(place: Path, name: str, stage: str, tmp_path: Path) -> None:
    """Codes have new rows; of several queries some are drawn. The index of the model has them, too."""
    made(place, name)
    generator = [f"--model.generator.name_or_path={place / 'llama'}"]
    more = ["--model.generator=CausalLM", "--model.loss=allowed", "--model.optimizer=adamw"]
    command = [
        "train", stage, *(["--config=configs/chains.yaml"] if stage == "chains" else more), *generator,
        f"--data.data={place / 'data'}", f"--data.identifiers={place / f'ids-{name}'}", *SHORT,
        f"--output={tmp_path / 'run'}", "--model.learning_rate=1e-2", "--trainer.max_epochs=8",
        "--trainer.check_val_every_n_epoch=8", "--checkpoint.monitor=null", "--recall.beams=20",
        *(["--data.spans.drawn=2"] if stage == "chains" else []),
    ]  # fmt: skip
    assert main(command) == 0
    losses = [*logged(tmp_path / "run", "train_loss").values()]
    assert losses[-1] < 0.7 * losses[0]
    model = tmp_path / "run" / "model"
    assert read_kind(model / FOLDER).fingerprint == read_kind(place / f"ids-{name}").fingerprint
    assert main(["index", str(model), f"--corpus={place / 'data'}", f"--output={tmp_path / 'r'}"]) == 0
    opened: Any = load_retriever(tmp_path / "r", Opening("cpu", search=WIDE))
    assert opened.identifiers.kind.record["kind"] == read_spec(tmp_path / "r")["identifiers"]["kind"]
    if stage == "chains":
        asked, qrels = read_split(place / "data", "train")
        hits = opened.retrieve(asked, 3)
        right = [bool({h.id for h in some} & {*qrels[q.id]}) for q, some in zip(asked, hits, strict=True)]
        assert sum(right) >= 8  # of 12


def test_options_that_a_kind_needs_are_named(place: Path, tmp_path: Path, capsys: Capsys) -> None:
    to = (f"--corpus={place / 'data'}", f"--output={tmp_path / 'ids'}")
    assert "identify queries needs --options.file." in fails(capsys, "identify", "queries", *to)
    assert "identify union needs --options.of." in fails(capsys, "identify", "union", *to)
    said = fails(capsys, "identify", "union", "--options.of=titles", *to)
    assert "--options.of must be a list, got 'titles'" in said
    raises(ConfigError, "queries needs file", identify, place / "data", "queries", tmp_path / "ids")


def test_a_tokenizer_without_room_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = CausalLM(str(place / "llama")).load()
    rows = loaded.model.get_input_embeddings().num_embeddings
    monkeypatch.setattr("grls.models.load.build.add_special_tokens", lambda tokenizer, names: 0)
    said = "the tokenizer takes 0 of 2 new rows, such as <c0_0>: take another model"
    raises(ConfigError, said, add_rows, *loaded, ["<c0_0>", "<c0_1>"])
    assert loaded.model.get_input_embeddings().num_embeddings == rows


def test_what_cannot_work_is_refused_and_leaves_nothing(place: Path, tmp_path: Path, capsys: Capsys) -> None:
    data, out = place / "data", tmp_path / "ids"
    command = [
        "identify",
        "codes",
        f"--corpus={data}",
        f"--output={out}",
        f"--options.encoder={place / 'bert'}",
    ]
    assert "set --options.size 10 or less" in fails(capsys, *command)
    assert "choose --options.levels so that" in fails(
        capsys, *command, "--options.method=product", "--options.levels=3", "--options.size=4"
    )
    field = ["identify", "field", f"--corpus={data}", f"--output={out}"]
    assert "'otter-calm' has no colour" in fails(capsys, *field, "--options.field=colour")
    assert "has no argument 'words'. It takes field" in fails(capsys, *field, "--options.words=3")
    write_jsonl(tmp_path / "few.jsonl", [{"_id": "q", "text": "who ?", "evidence": ["r0"]}])
    few = ["identify", "queries", f"--corpus={data}", f"--output={out}"]
    assert "'otter-calm' has no pseudo-query" in fails(
        capsys, *few, f"--options.file={tmp_path / 'few.jsonl'}"
    )
    assert not out.exists()
    # trainings and indexes
    record = made(place, "residual").record
    shutil.copytree(data, tmp_path / "data")
    lines = (data / "corpus.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "data" / "corpus.jsonl").write_text("".join(lines[::-1]))
    run = [
        "train", "chains", "--config=configs/chains.yaml", f"--output={tmp_path / 'run'}",
        f"--model.generator.name_or_path={place / 'llama'}", f"--data.identifiers={place / 'ids-residual'}",
    ]  # fmt: skip
    told = fails(capsys, *run, f"--data.data={tmp_path / 'data'}")
    command = shlex.split(told.partition("make them again by `grls ")[2].partition("`")[0])
    assert command[-2:] == ["--output", str(place / "ids-residual")]
    assert main([*command[:-1], str(tmp_path / "again")]) == 0  # with the options that were given
    assert read_kind(tmp_path / "again").record == record
    assert "set --model.lora_rank 0, --model.freeze_embeddings false" in fails(
        capsys, *run, f"--data.data={data}", "--model.freeze_embeddings=true"
    )
    assert not (tmp_path / "run").exists()
    model = shutil.copytree(place / "llama", tmp_path / "llama")
    shutil.copytree(place / "ids-residual", model / FOLDER)
    index = ["index", str(model), f"--corpus={data}", f"--output={tmp_path / 'r'}"]
    assert "lacks 6 rows of the identifiers, such as <c0_0>" in fails(capsys, *index)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("brought", [[1, 2], [None], 5, [" "], ["who ?", ""], "who ?", {"a": 1}])
def test_queries_that_are_no_texts_are_refused(place: Path, brought: Any) -> None:
    new = Corpus.from_passages([Passage("new", "the stoat is calm .")], metadata=[{"queries": brought}])
    kind = made(place, "queries").knowing(new)
    raises(DataError, "'new' has no pseudo-query for this title", Identifiers, kind, new)


def test_a_changed_passage_does_not_take_the_queries_of_its_id(
    place: Path, tmp_path: Path, capsys: Capsys
) -> None:
    kind = made(place, "queries")
    retriever, old = over(place, kind), passages()[0].id
    changed, brought = Passage(old, "wholly other text"), [{"queries": ["who otter ?"]}]
    retriever.remove([old])
    raises(DataError, f"'{old}' has no pseudo-query for this title", retriever.add, [changed])
    retriever.add(Corpus.from_passages([changed], metadata=brought))
    identifiers: Any = retriever.identifiers
    assert identifiers.listed(identifiers.of([9])) == ["who otter ?"]
    # the index of a trained model over other texts under the same ids
    model = place / "llama-queries"
    shutil.copytree(place / "llama", model)
    shutil.copytree(place / "ids-queries", model / FOLDER)
    write_jsonl(tmp_path / "corpus.jsonl", [{"_id": p.id, "text": f"other {p.text}"} for p in passages()])
    index = ["index", model, f"--corpus={tmp_path}", f"--output={tmp_path / 'r'}"]
    assert "has no pseudo-query for this title" in fails(capsys, *index)


@pytest.mark.parametrize("tags", [None, [], "", ["a", None], ["a", {"b": 1}], [["a"]], {"b": 1}, ["a", " "]])
def test_a_field_holds_texts_or_numbers(tags: Any) -> None:
    corpus = Corpus.from_passages([Passage("p", "a text")], metadata=[{"tags": tags}])
    raises(DataError, "'p' has no tags", Identifiers, Field("tags"), corpus)
    fit = Corpus.from_passages([Passage("p", "a text")], metadata=[{"tags": ["a", 2, "a"]}])
    assert Identifiers(Field("tags"), fit).listed([0, 1]) == ["a", "2"]


def test_a_union_takes_folders_and_one_of_codes(place: Path) -> None:
    corpus = Corpus.read(place / "data")
    made(place, "union"), made(place, "product")
    codes = [place / "ids-residual", place / "ids-product"]
    raises(ConfigError, "codes, of tokens with equal names", Union(codes).learn, corpus)
    for wrong in ([], codes[:1], [1, 2], [{"kind": "field"}, {"kind": "keywords"}]):
        raises(ConfigError, "of takes at least two folders", Union(wrong).learn, corpus)
    Union([place / "ids-title", codes[0]]).learn(corpus)


def test_new_rows_are_trained_where_they_are_read_and_written(place: Path, tmp_path: Path) -> None:
    untied = CausalLM(str(save_llama(tmp_path, CausalLM(str(place / "llama")).load().tokenizer)))
    codes = made(place, "residual")
    for frozen in (True, False):
        module = GeneratorModule(ModelOptions(generator=untied, freeze_embeddings=frozen), "retrieve")
        if frozen:
            raises(ConfigError, "this training would not change:", module.add_rows, codes)
        else:
            module.add_rows(codes)


def test_other_codes_of_equal_names_are_not_learned_by_frozen_rows(place: Path, tmp_path: Path) -> None:
    codes, other = made(place, "residual"), made(place, "product")
    loaded = CausalLM(str(place / "llama")).load()
    add_rows(*loaded, codes.vocabulary)
    for part in loaded:
        part.save_pretrained(tmp_path)
    (tmp_path / FOLDER).mkdir()
    codes.write(tmp_path / FOLDER)
    frozen = ModelOptions(generator=CausalLM(str(tmp_path)), freeze_embeddings=True)
    GeneratorModule(frozen, "retrieve").add_rows(codes)
    assert {*other.vocabulary} <= {*codes.vocabulary}
    raises(ConfigError, "has not learned for them", GeneratorModule(frozen, "retrieve").add_rows, other)


def test_an_added_passage_needs_the_encoder_of_the_codes(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "bert", tmp_path / "bert")
    kind = Codes(str(tmp_path / "bert"), levels=2, size=3)
    kind.learn(Corpus.read(place / "data"))
    retriever, new = over(place, kind), [Passage("new", "the stoat is calm .")]
    before = found(retriever)
    tiny_bert(tmp_path / "other", layers=1)
    shutil.rmtree(tmp_path / "bert")
    raises(ConfigError, "1 passages have no code yet, and the encoder .* put it back", retriever.add, new)
    shutil.move(tmp_path / "other", tmp_path / "bert")
    raises(MismatchError, "is another encoder than that of the codes", retriever.add, new)
    assert found(retriever) == before


def test_a_text_that_spells_a_row_is_no_row(place: Path) -> None:
    loaded = CausalLM(str(place / "llama")).load()
    add_rows(*loaded, ["<c0_0>", "<c0_1>"])
    codec = Codec(loaded.tokenizer, causal=True)
    row = codec.named(("<c0_1>", "<c0_0>"))
    assert codec.text(row) == "<c0_1><c0_0>"
    assert not {*row[:-1].tolist()} & {*codec.texts(["<c0_1> <c0_0>"])[0]}
