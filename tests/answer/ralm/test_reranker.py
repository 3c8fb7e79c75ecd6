"""The trained reranker: its loss, its training, its order, and the commands."""

import json
import math
from pathlib import Path

import pytest
import torch
from failing import fails, raises
from fixture_types import Caplog, Capsys
from ralm_helpers import PASSAGES, TEXT, byte_tokenizer, write_model
from rerank_examples import ANIMALS, fitted
from small_data import tiny_bert

from grls.answer.ralm.reader import Stride
from grls.answer.ralm.reranker import Reranker, Trained, read_examples
from grls.cli import main
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError
from grls.train.options import EncoderOptions
from grls.train.reranker.module import rerank_loss


def test_the_loss_is_the_likelihood_under_the_reranker() -> None:
    values, scores = torch.tensor([0.0, math.log(3.0)]), torch.tensor([-1.0, -2.0])
    expected = -math.log(0.25 * math.exp(-1) + 0.75 * math.exp(-2))
    assert float(rerank_loss(values, scores)) == pytest.approx(expected)


def test_training_learns_which_document_helps(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = tiny_bert(tmp_path / "bert")
    trained = fitted(encoder, 12, 4, tmp_path / "out", EncoderOptions(25, 4, 3e-3))
    assert trained.best is not None
    assert trained.best < 1.5  # 1 is the best that can be had, by chance it is about 2.4
    again = Reranker.load(str(tmp_path / "out" / "model"), device="cpu")
    assert again.max_tokens == 32
    assert int(again.scores(["is the lynx calm"] * 4, [p.text for p in ANIMALS]).argmax()) == 1
    with pytest.raises(ConfigError, match="there is no checkpoint to resume from"):
        fitted(encoder, 12, 12, tmp_path / "new", EncoderOptions(1), resume=True)


def test_a_long_prefix_leaves_half_the_room_to_the_document(tmp_path: Path) -> None:
    encoder = Reranker.load(str(tiny_bert(tmp_path / "bert")), 12, "cpu")
    prefix = "the otter is calm " * 9
    one, other = encoder.scores([prefix] * 2, ["lynx is quick", "heron is quick"])
    assert one != other
    assert encoder.scores([f"quick quick {prefix}"], ["lynx is quick"])[0] == pytest.approx(one, abs=1e-6)


def test_a_reranker_of_longer_prefixes_is_refused(tmp_path: Path) -> None:
    encoder = Reranker.load(str(tiny_bert(tmp_path / "bert")), 32, "cpu")
    encoder.save(tmp_path / "out")
    assert Reranker.load(str(tmp_path / "out"), device="cpu", trained=True).max_tokens == 32
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    config["grls_reranker"]["prefix_tokens"] = 128
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    told = "was trained on 128 tokens before a stride, and rerankers read 64: train one anew"
    with pytest.raises(ConfigError, match=told):
        Reranker.load(str(tmp_path / "out"), device="cpu", trained=True)


def test_each_candidate_is_scored_behind_the_prefix_of_its_stride(tmp_path: Path) -> None:
    corpus = Corpus.from_passages(PASSAGES)
    encoder = Reranker.load(str(tiny_bert(tmp_path / "bert")), 32, "cpu")
    tokenizer = byte_tokenizer()
    text = tokenizer(TEXT)["input_ids"]
    some = [Stride(8, 12), Stride(20, 24)]
    found = Trained(encoder, tokenizer, corpus).scores(text, some, [[0, 2, 3], [1, 0]])
    for stride, own, values in zip(some, [[0, 2, 3], [1, 0]], found, strict=True):
        prefix = tokenizer.decode(text[: stride.first])
        texts = [f"{corpus[n].title} {corpus[n].text}".strip() for n in own]
        assert values == pytest.approx(encoder.scores([prefix] * len(own), texts), abs=1e-6)


def test_bad_examples_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_text('{"settings": {}}\n{"prefix": "a", "passages": ["x"], "scores": []}\n')
    raises(DataError, r"e\.jsonl, line 2", read_examples, file, ANIMALS)
    file.write_text('{"settings": {}}\n')
    raises(DataError, "no examples", read_examples, file, ANIMALS)
    file.write_text('{"prefix": "a", "passages": ["wolf"], "scores": [0.0]}\n')
    raises(DataError, "'wolf'", read_examples, file, ANIMALS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ralm")
    write_model(path / "model")
    Corpus.from_passages(PASSAGES).write(path / "data" / "corpus.jsonl")
    (path / "text.txt").write_text(TEXT, encoding="utf-8")
    return path


def options(folder: Path, output: str, *more: str, job: tuple[str, ...] = ()) -> list[str]:
    return [
        "ralm", *job, "--model", str(folder / "model"), "--text", str(folder / "text.txt"), "--output",
        str(folder / output), "--data", str(folder / "data"), "--reader.window", "64",
        "--reader.document_tokens", "12", "--reader.cut", "8", "--device", "cpu", *more,
    ]  # fmt: skip


def test_the_commands_from_examples_to_a_lower_perplexity(folder: Path, capsys: Capsys) -> None:
    assert main(options(folder, "plain", "--retriever", "bm25")) == 0
    plain = json.loads((folder / "plain.json").read_text())
    assert "perplexity" in capsys.readouterr().out
    assert plain["words"] == len(TEXT.split())
    assert plain["token"] == pytest.approx(plain["word"] ** (plain["words"] / plain["tokens"]))
    assert main(options(folder, "best", "--retriever", "bm25", "--rerank.by", "oracle")) == 0
    assert json.loads((folder / "best.json").read_text())["token"] < plain["token"]
    zero_shot = ("--retriever=bm25", "--rerank.by=zero-shot", "--rerank.candidates=3")
    assert main(options(folder, "judged", *zero_shot)) == 0
    three = ("--retriever=bm25", "--examples.candidates=3")
    assert main(options(folder, "e", *three, job=("examples",))) == 0
    made = str(folder / "e.examples.jsonl")
    encoder = str(tiny_bert(folder / "bert"))
    for output in ("judge", "again"):
        assert main([
            "train", "reranker", "--train", made, "--dev", made, "--data", str(folder / "data"), "--output",
            str(folder / output), "--encoder", encoder, "--max_tokens", "32", "--fit.epochs", "1", "--device",
            "cpu",
        ]) == 0  # fmt: skip
    weights = [(folder / name / "model" / "model.safetensors").read_bytes() for name in ("judge", "again")]
    assert weights[0] == weights[1]  # the encoder's missing head comes of the seed, too
    judge = f"--rerank.reranker={folder / 'judge' / 'model'}"
    trained = ("--retriever=bm25", "--rerank.by=trained", judge, "--rerank.candidates=3")
    assert main(options(folder, "trained", *trained)) == 0


@pytest.fixture(scope="module")
def collected(folder: Path) -> Path:
    more = ("--retriever", "bm25", "--examples.candidates", "3")
    assert main(options(folder, "collected", *more, job=("examples",))) == 0
    tiny_bert(folder / "small-bert")
    return folder / "collected.examples.jsonl"


def training(folder: Path, made: Path, output: Path, *more: str) -> list[str]:
    return [
        "train", "reranker", "--train", str(made), "--dev", str(made), "--data", str(folder / "data"),
        "--output", str(output), "--encoder", str(folder / "small-bert"), "--max_tokens", "32",
        "--fit.epochs", "1", "--device", "cpu", *more,
    ]  # fmt: skip


def test_a_reranker_is_trained_on_the_corpus_of_its_examples(
    folder: Path, collected: Path, tmp_path: Path, capsys: Capsys
) -> None:
    changed = [PASSAGES[0]._replace(text="another text"), *PASSAGES[1:]]  # the same ids
    Corpus.from_passages(changed).write(tmp_path / "data" / "corpus.jsonl")
    assert main(training(folder, collected, tmp_path / "x", "--data", str(tmp_path / "data"))) == 1
    assert "were collected with another corpus than --data" in capsys.readouterr().err


def test_training_is_resumed_with_the_same_options_only(
    folder: Path, collected: Path, tmp_path: Path, capsys: Capsys
) -> None:
    output = tmp_path / "out"
    assert main(training(folder, collected, output)) == 0
    fewer = tmp_path / "fewer.jsonl"
    fewer.write_text("".join(collected.read_text().splitlines(keepends=True)[:-1]))
    resumed = ("--resume", "true")
    for option, value, told in (
        ("--fit.epochs", "2", "had --fit.epochs 1, now it is 2"),
        ("--train", str(fewer), "the file of train examples has changed since the run"),
        ("--max_tokens", "31", "now it is 31"),
    ):
        assert told in fails(capsys, *training(folder, collected, output, *resumed, option, value))
    assert main(training(folder, collected, output, *resumed)) == 0


def test_the_texts_own_passages_are_left_out(folder: Path) -> None:
    (folder / "exclude.txt").write_text("mill\nb\n")
    assert (
        main(options(folder, "guarded", "--retriever", "bm25", "--exclude", str(folder / "exclude.txt"))) == 0
    )
    rows = [json.loads(line) for line in (folder / "guarded.strides.jsonl").read_text().splitlines()][1:]
    assert {name for row in rows for name in row["passages"]} == {"c", "d"}


def test_lines_that_exclude_nothing_are_told(folder: Path, caplog: Caplog, capsys: Capsys) -> None:
    file = folder / "some.txt"
    file.write_text("  mill \n\nb\nMill\n" + "".join(f"page {n}\n" for n in range(6)))
    assert main(options(folder, "told", "--retriever", "bm25", "--exclude", str(file))) == 0
    (said,) = [record.getMessage() for record in caplog.records if "exclude nothing" in record.getMessage()]
    assert "7 of 9 lines are no title and no id" in said
    assert said.endswith("'Mill', 'page 0', 'page 1', 'page 2', 'page 3', …")
    caplog.clear()
    file.write_bytes("é".encode("latin-1"))
    assert main(options(folder, "latin-out", "--retriever", "bm25", "--exclude", str(file))) == 1
    assert "expected UTF-8" in capsys.readouterr().err
    file.write_text("Mill\n")
    assert main(options(folder, "none", "--retriever", "bm25", "--exclude", str(file))) == 1
    assert "has a title or id that stands in this file" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "message"), [
    (["--rerank.by", "oracle"], "nothing to rerank"),
    (["--retriever", "bm25", "--rerank.by", "trained"], "go together"),
    (["--retriever", "bm25", "--rerank.judge", "x"], "--rerank.by zero-shot"),
    (["--retriever", "bm25", "--rerank.candidates", "0"], "--rerank.candidates must be at least 1"),
    (["--exclude", "x"], "nothing to exclude"),
    (["--limit", "1"], "at least two tokens"),
    (["--text", "nowhere.txt"], "no such text"),
    (["--retriever=bm25", "--rerank.by=oracle", "--rerank.candidates=1", "--reader.documents=2"],
     "raise --rerank.candidates"),
])  # fmt: skip
def test_bad_options_are_refused(folder: Path, more: list[str], message: str, capsys: Capsys) -> None:
    given = options(folder, "refused", *more)
    if "--reader.documents=2" in more:
        given += ["--reader.document_tokens", "4"]
    assert message in fails(capsys, *given)
    assert not (folder / "refused.json").exists()


def test_another_model_judge_or_text_under_the_same_name_does_not_go_on(
    folder: Path, tmp_path: Path, capsys: Capsys
) -> None:
    write_model(tmp_path / "model")
    named = ("--model", str(tmp_path / "model"))
    assert main(options(folder, "named", *named)) == 0
    write_model(tmp_path / "model", seed=7)
    assert "other settings (weights)" in fails(capsys, *options(folder, "named", *named))
    write_model(tmp_path / "judge", seed=3)
    judged = ("--retriever", "bm25", "--rerank.by", "zero-shot", "--rerank.judge", str(tmp_path / "judge"))
    assert main(options(folder, "judged-by", *judged)) == 0
    write_model(tmp_path / "judge", seed=4)
    assert "other settings (judged_by)" in fails(capsys, *options(folder, "judged-by", *judged))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text((folder / "text.txt").read_text())
    texts = ("--text", str(tmp_path / "texts"))
    assert main(options(folder, "renamed", *texts)) == 0
    (tmp_path / "texts" / "a.txt").rename(tmp_path / "texts" / "b.txt")
    assert "other settings (texts)" in fails(capsys, *options(folder, "renamed", *texts))
    (tmp_path / "texts" / "c.txt").write_text("")
    assert "c.txt: the text is empty" in fails(capsys, *options(folder, "empty", *texts))
