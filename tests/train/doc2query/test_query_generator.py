"""A query generator through `grls train`: what it learns, and what it leaves for `grls pseudo-queries`."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from failing import fails
from llama_small import write_untrained
from small_data import passages, queries, write_jsonl, write_small
from train_helpers import SHORT, logged, scratch_options

from grls.answer.writer import TextWriter
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.models.load.generators import PretrainedLM
from grls.models.load.language import load_language_model
from grls.train.doc2query.data import QueryData, QueryExamples
from grls.train.doc2query.generate import QueryForm, QueryPrompt
from grls.train.options import QueryDataOptions

CORPUS = Corpus.from_passages(passages())
FORM = "passage: query: \n"
TWO_HOPS = Query("q", "is the otter\n kind ?", ("otter-calm", "r0"))


@pytest.fixture(scope="module")
def causal(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("causal"), data, FORM)


def generator(kind: str, data: Path, causal: Path) -> list[str]:
    """Options that make a tiny model of some kind."""
    if kind == "causal":
        return [
            "--model.generator=PretrainedLM",
            f"--model.generator.name_or_path={causal}",
        ]
    return scratch_options(data, texts='["passage: query:"]')


def options(data: Path, output: Path, *more: str) -> list[str]:
    return [
        "doc2query", *more[:1], f"--output={output}", "--model.learning_rate=3e-3",
        f"--data.data={data}", *SHORT, *more[1:],
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["causal", "t5"])
def test_a_model_learns_to_write_queries(data: Path, causal: Path, tmp_path: Path, kind: str) -> None:
    single = [q for q in queries() if len(q.evidence) == 1]
    folder = tmp_path / "data"
    write_small(folder)
    qrels = "".join(f"{q.id}\t{q.evidence[0]}\t1\n" for q in single)
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    often = ["--trainer.max_epochs=120", "--trainer.check_val_every_n_epoch=40", "--data.dev_split=train",
             "--model.schedule=constant", "--model.learning_rate=1e-2"]  # fmt: skip
    output = tmp_path / "run"
    assert main(["train", *options(folder, output, *generator(kind, data, causal), *often)]) == 0
    assert min(logged(output, "dev_loss").values()) < 0.1
    loaded = load_language_model(str(output / "model"), "cpu")
    prompt = QueryPrompt(loaded.tokenizer, kind == "causal", QueryForm.read(output / "model"))
    corpus = Corpus.read(folder)
    rows = prompt.passages(
        [corpus[n] for n in corpus.numbers([q.evidence[0] for q in single]) if n is not None]
    )
    written = TextWriter(*loaded, max_new_tokens=20).write([prompt.source([row]) for row in rows])
    assert [one.text.replace(" ?", "?") for one in written] == [q.text.replace(" ?", "?") for q in single]
    assert all(one.ended for one in written)


@pytest.fixture(scope="module")
def tokenizer(causal: Path) -> Any:
    return PretrainedLM(str(causal)).load().tokenizer


def ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_what_is_read_and_written(tokenizer: Any) -> None:
    """Passages a line each, cut; a causal model gets no end token, an encoder-decoder does."""
    some = [Passage("a", "the otter is calm .", "otter"), Passage("b", "the lynx is quick .")]
    cut = len(ids(tokenizer, "passage: the lynx"))
    for causal in (True, False):
        prompt = QueryPrompt(tokenizer, causal, QueryForm(passage_tokens=cut))
        expected = ids(tokenizer, "passage: otter: the otter is calm .")[:cut] + ids(tokenizer, "\n")
        expected += ids(tokenizer, "passage: the lynx") + ids(tokenizer, "\n") + ids(tokenizer, "query:")
        assert prompt.source(prompt.passages(some)) == expected + ([] if causal else [tokenizer.eos_token_id])
        assert prompt.targets(["is it\n calm ?"]) == [
            [*ids(tokenizer, "is it calm ?"), tokenizer.eos_token_id]
        ]
    assert prompt.passages([]) == []
    plain = QueryPrompt(tokenizer, False, QueryForm(plain=True))  # as doc2query's own models read
    alone = [*ids(tokenizer, "otter the otter is calm ."), tokenizer.eos_token_id]
    assert plain.source(plain.passages(some[:1])) == alone


def examples(tokenizer: Any, kind: Any, query: Query = TWO_HOPS, **how: Any) -> QueryExamples:
    prompt = QueryPrompt(tokenizer, True, QueryForm(kind))
    return QueryExamples([query], how.pop("qrels", {}), CORPUS, prompt, **how)


def read(some: QueryExamples, number: int, epoch: int = 0) -> list[str]:
    """The passages that an example reads."""
    source = some.draw(number, epoch).source
    text = some.prompt.tokenizer.decode(source)
    found = {text.find(p.text): p.id for p in passages() if p.text in text}
    return [found[place] for place in sorted(found)]


def test_one_all_or_some_gold_passages_are_read(tokenizer: Any) -> None:
    one, every, some = (examples(tokenizer, kind) for kind in ("one", "all", "some"))
    assert [read(one, n) for n in range(len(one))] == [["otter-calm"], ["r0"]]
    assert [read(every, n) for n in range(len(every))] == [["otter-calm", "r0"]]
    assert {tuple(read(some, 0, epoch)) for epoch in range(20)} == {("otter-calm",), ("r0",)}
    assert {tuple(read(some, 1, epoch)) for epoch in range(20)} == {("otter-calm", "r0")}
    assert len(some) == 2
    for kind in (one, every, some):
        assert {tuple(kind.draw(n, 1).target) for n in range(len(kind))} == {
            tuple(kind.prompt.targets(["is the otter kind ?"])[0])
        }
        assert len(kind.lengths()) == len(kind)
    assert every.lengths()[0] > one.lengths()[0]
    assert [some.draw(0, e) for e in range(9)] == [examples(tokenizer, "some").draw(0, e) for e in range(9)]


def test_the_form_stands_beside_the_model(data: Path, causal: Path, tmp_path: Path) -> None:
    more = [*generator("causal", data, causal), "--data.passages=some", "--data.max_passage_tokens=9"]
    assert main(["train", *options(data, tmp_path / "run", *more)]) == 0
    assert QueryForm.read(tmp_path / "run" / "model") == QueryForm("some", 9, 64)
    assert PretrainedLM(str(tmp_path / "run" / "model")).stages() == ("writequeries",)


def test_queries_that_are_too_long_are_left_out(
    causal: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_small(tmp_path / "data")
    lines = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    lines[1]["text"] += " why" * 70
    write_jsonl(folder / "queries.jsonl", lines)
    made = QueryData(QueryDataOptions(data=str(folder)))
    made.read(
        SimpleNamespace(options=SimpleNamespace(loss="full"), **PretrainedLM(str(causal)).load()._asdict())
    )
    assert lines[1]["_id"] not in [query.id for query in made.train_examples.queries]  # type: ignore[attr-defined]
    assert "left out as too long: 1 of 12 queries of train, for more than 64 tokens" in caplog.text


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--model.loss=allowed"], "take loss `full`"),
        (["--data.dev_split=nowhere"], "nowhere.tsv"),
        (["--data.max_query_tokens=1"], "no example is left to learn from: 12 of 12 queries of train"),
        (["--checkpoint.monitor=dev_recall"], "dev_recall is not measured"),
    ],
)
def test_options_of_a_generator_that_cannot_work(
    data: Path, causal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], named: str
) -> None:
    given = options(data, tmp_path / "run", *generator("causal", data, causal), *more)
    assert named in fails(capsys, "train", *given)
    assert not (tmp_path / "run" / "model").exists()
