"""What may be quoted from a corpus."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import raises
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from grls.answer.riches.keys import build_keys
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError, DataError
from grls.index.keys import PrefixKeys
from grls.index.substring import SubstringIndex
from grls.models.load.build import train_tokenizer

PASSAGES = [
    Passage("a", "The mill was built in 1820. Dr. Orla Finn owned it. It burned down.", "Mill"),
    Passage("b", "It burned down.", "Barn"), Passage("c", "Nobody knows", ""),
]  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    Corpus.from_passages(PASSAGES).write(tmp_path / "corpus.jsonl")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "« who » :"}\n', encoding="utf-8")
    return tmp_path


@pytest.fixture
def tokenizer(data: Path) -> Any:
    return train_tokenizer(data, 300)


@pytest.mark.parametrize(("kind", "texts", "passages"), [
    ("sentence",
     ("The mill was built in 1820.", "Dr. Orla Finn owned it.", "It burned down.", "Nobody knows"),
     ((0,), (0,), (0, 1), (2,))),
    ("paragraph", tuple(p.text for p in PASSAGES), ((0,), (1,), (2,))),
    ("titled", (f"Mill: {PASSAGES[0].text}", "Barn: It burned down.", "Nobody knows"), ((0,), (1,), (2,))),
    ("title", ("Mill", "Barn"), ((0,), (1,))),
])  # fmt: skip
def test_keys_and_their_passages(data: Path, tokenizer: Any, kind: Any, texts: Any, passages: Any) -> None:
    keys = build_keys(Corpus.read(data), tokenizer, kind)
    assert keys.texts == texts
    assert keys.passages == passages
    assert isinstance(keys.index, PrefixKeys)
    decoded = [tokenizer.decode(keys.index.tokens(n)).strip() for n in range(len(texts))]
    assert [text.replace(" ", "") for text in decoded] == [text.replace(" ", "") for text in texts]


def test_a_quote_may_begin_anywhere(data: Path, tokenizer: Any) -> None:
    keys = build_keys(Corpus.read(data), tokenizer, anywhere=True)
    assert isinstance(keys.index, SubstringIndex)
    state = keys.index.start()
    for token in keys.index.tokens(1)[2:].tolist():
        following = keys.index.follow(state[None])
        state = following.states[np.flatnonzero(following.tokens == token)[0]]
    assert keys.index.keys(state).tolist() == [1]


def test_propositions(data: Path, tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    file = data / "propositions.jsonl"
    file.write_text(
        '{"passage": "a", "text": "the mill burned"}\n{"passage": "b", "text": "it burned"}\n'
        '{"passage": "b", "text": "the mill burned"}\n',
        encoding="utf-8",
    )
    corpus = Corpus.read(data)
    keys = build_keys(corpus, tokenizer, "proposition", propositions=file)
    assert keys.texts == ("the mill burned", "it burned")
    assert keys.passages == ((0, 1), (1,))
    assert f"{len(corpus) - 2} of {len(corpus)} passages have no line" in caplog.text
    caplog.clear()
    with file.open("a", encoding="utf-8") as stream:
        stream.writelines(
            f'{{"passage": "{name}", "text": null}}\n' for name in corpus.ids(range(2, len(corpus)))
        )
    build_keys(corpus, tokenizer, "proposition", propositions=file)
    assert "have no line" not in caplog.text
    file.write_text('{"passage": "a", "text": "x"}\n{"passage": "zz", "text": "x"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"propositions\.jsonl, line 2: .*'zz'"):
        build_keys(Corpus.read(data), tokenizer, "proposition", propositions=file)
    file.write_text('{"passage": "a", "text": " "}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"'passage' .* and 'text'"):
        build_keys(Corpus.read(data), tokenizer, "proposition", propositions=file)
    file.write_text('{"passage": "a", "text": "the « mill"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"propositions\.jsonl.*'a' holds the marker '«'"):
        build_keys(Corpus.read(data), tokenizer, "proposition", propositions=file)


def test_headers_are_titles_with_their_sections(data: Path, tokenizer: Any) -> None:
    file = data / "corpus.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    sections = [{"section": " It burned "}, {}, {"section": "Nobody"}]
    told = [{**line, "metadata": some} for line, some in zip(lines, sections, strict=True)]
    again = [{**told[0], "_id": "d"}, {**told[1], "_id": "e", "metadata": {"section": None}}]
    last = {"_id": "f", "text": "Nobody knows"}
    file.write_text("".join(json.dumps(line) + "\n" for line in [*told, *again, last]), encoding="utf-8")
    keys = build_keys(Corpus.read(data), tokenizer, "header")
    assert keys.texts == ("Mill: It burned", "Barn", "Nobody")
    assert keys.passages == ((0, 3), (1, 4), (2,))
    told[1]["metadata"] = {"section": 7}
    file.write_text("".join(json.dumps(line) + "\n" for line in told), encoding="utf-8")
    with pytest.raises(DataError, match=r"metadata\.section of the passage 'b' is 7"):
        build_keys(Corpus.read(data), tokenizer, "header")
    with pytest.raises(DataError, match="no header to quote"):
        build_keys(Corpus.from_passages([Passage("x", "text")]), tokenizer, "header")


def test_bad_input_is_refused(data: Path, tokenizer: Any) -> None:
    corpus = Corpus.read(data)
    raises(ConfigError, r"kind must be one of .*'word'", build_keys, corpus, tokenizer, "word")
    raises(ConfigError, "go together", build_keys, corpus, tokenizer, "proposition")
    with pytest.raises(DataError, match="no such file"):
        build_keys(corpus, tokenizer, "proposition", propositions=data / "none.jsonl")
    with pytest.raises(DataError, match="no title to quote"):
        build_keys(Corpus.from_passages([Passage("x", "text")]), tokenizer, "title")
    with pytest.raises(DataError, match=r"'x' holds the marker '»'.*other markers"):
        build_keys(Corpus.from_passages([Passage("x", "a » b")]), tokenizer)
    with pytest.raises(DataError, match="cannot write a key of the passage 'x'"):
        build_keys(Corpus.from_passages([Passage("x", "The ☃ mill.")]), tokenizer)


def test_letters_that_a_tokenizer_drops_are_noticed(data: Path) -> None:
    """Some tokenizers have no unknown token and leave out what they do not know."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Metaspace()
    bpe.decoder = decoders.Metaspace()
    bpe.train_from_iterator(["The mill was built."], trainers.BpeTrainer(special_tokens=["</s>"]))
    silent = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="</s>")
    corpus = Corpus.from_passages(
        [Passage("x", "The mill was built."), Passage("y", "The ☃ mill was built.")]
    )
    raises(DataError, "cannot write a key of the passage 'y'", build_keys, corpus, silent)


@pytest.mark.parametrize("markers", [("", "x"), ("«", "«"), ("«", " »")])
def test_markers_that_cannot_be_used_are_refused_before_the_work(
    data: Path, markers: tuple[str, str]
) -> None:
    raises(ConfigError, "marker", build_keys, Corpus.read(data), train_tokenizer(data, 400), markers=markers)
