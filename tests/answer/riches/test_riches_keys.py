"""What may be quoted from a corpus, and its folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import raises
from fixture_types import Caplog, Patch

from grls.answer.riches import keys as module
from grls.answer.riches.keys import Keys, build_keys
from grls.answer.riches.options import KeyOptions
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, IndexFormatError, MismatchError, WriteError
from grls.index.keys import PrefixKeys
from grls.index.substring import SubstringIndex
from grls.models.load.build import train_tokenizer

PASSAGES = [
    Passage("a", "The mill was built in 1820. Dr. Émile Finn owned it. It burned down.", "Mill"),
    Passage("b", "It burned down.", "Barn"), Passage("c", "Nobody knows", ""),
]  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    Corpus.from_passages(PASSAGES).write(tmp_path / "data" / "corpus.jsonl")
    (tmp_path / "data" / "queries.jsonl").write_text('{"_id": "q", "text": "« who » : [ ]"}\n', "utf-8")
    return tmp_path / "data"


@pytest.fixture
def corpus(data: Path) -> Corpus:
    return Corpus.read(data)


@pytest.fixture
def tokenizer(data: Path) -> Any:
    return train_tokenizer(data, 300)


@pytest.mark.parametrize(("kind", "texts", "passages"), [
    ("sentence",
     ("The mill was built in 1820.", "Dr. Émile Finn owned it.", "It burned down.", "Nobody knows"),
     ((0,), (0,), (0, 1), (2,))),
    ("paragraph", tuple(p.text for p in PASSAGES), ((0,), (1,), (2,))),
    ("titled", (f"Mill: {PASSAGES[0].text}", "Barn: It burned down.", "Nobody knows"), ((0,), (1,), (2,))),
    ("title", ("Mill", "Barn"), ((0,), (1,))),
])  # fmt: skip
def test_keys_and_their_passages(
    corpus: Corpus, tokenizer: Any, kind: Any, texts: Any, passages: Any
) -> None:
    keys = build_keys(corpus, tokenizer, KeyOptions(kind))
    assert keys.texts == texts
    assert keys.passages == passages
    assert isinstance(keys.index, PrefixKeys)
    decoded = [tokenizer.decode(keys.index.tokens(n)).strip() for n in range(len(texts))]
    assert [text.replace(" ", "") for text in decoded] == [text.replace(" ", "") for text in texts]


def test_a_quote_may_begin_anywhere(corpus: Corpus, tokenizer: Any) -> None:
    keys = build_keys(corpus, tokenizer, KeyOptions(anywhere=True))
    assert isinstance(keys.index, SubstringIndex)
    state = keys.index.start()
    for token in keys.index.tokens(1)[2:].tolist():
        following = keys.index.follow(state[None])
        state = following.states[np.flatnonzero(following.tokens == token)[0]]
    assert keys.index.keys(state).tolist() == [1]


def test_propositions(corpus: Corpus, tokenizer: Any, tmp_path: Path, caplog: Caplog) -> None:
    file = tmp_path / "propositions.jsonl"
    options = KeyOptions("proposition", False, str(file))
    file.write_text(
        '{"passage": "a", "text": "the mill burned"}\n{"passage": "b", "text": "it burned"}\n'
        '{"passage": "b", "text": "the mill burned"}\n',
        encoding="utf-8",
    )
    keys = build_keys(corpus, tokenizer, options)
    assert keys.texts == ("the mill burned", "it burned")
    assert keys.passages == ((0, 1), (1,))
    assert f"{len(corpus) - 2} of {len(corpus)} passages have no line" in caplog.text
    caplog.clear()
    with file.open("a", encoding="utf-8") as stream:
        stream.writelines(
            f'{{"passage": "{name}", "text": null}}\n' for name in corpus.ids(range(2, len(corpus)))
        )
    build_keys(corpus, tokenizer, options)
    assert "have no line" not in caplog.text
    file.write_text('{"passage": "a", "text": "x"}\n{"passage": "zz", "text": "x"}\n', encoding="utf-8")
    raises(DataError, r"propositions\.jsonl, line 2: .*'zz'", build_keys, corpus, tokenizer, options)
    file.write_text('{"passage": "a", "text": " "}\n', encoding="utf-8")
    raises(DataError, r"'passage' .* and 'text'", build_keys, corpus, tokenizer, options)
    file.write_text('{"passage": "a", "text": "the « mill"}\n', encoding="utf-8")
    raises(
        DataError, r"propositions\.jsonl.*'a' holds the marker '«'", build_keys, corpus, tokenizer, options
    )


def stored(
    folder: str | Path, corpus: Corpus, tokenizer: Any, kind: Any = "sentence", markers: Any = ("«", "»"),
    **options: Any,
) -> Keys:  # fmt: skip
    return build_keys(corpus, tokenizer, KeyOptions(kind, folder=str(folder), **options), markers)


@pytest.mark.parametrize("anywhere", [False, True])
def test_keys_come_back_without_a_tokenizer(
    corpus: Corpus, tokenizer: Any, tmp_path: Path, anywhere: bool, monkeypatch: Patch
) -> None:
    built = stored(tmp_path / "keys", corpus, tokenizer, anywhere=anywhere)
    monkeypatch.setattr(module, "encoded_texts", lambda *_: pytest.fail("the corpus was tokenized again"))
    loaded = stored(tmp_path / "keys", corpus, tokenizer, anywhere=anywhere)
    assert tuple(loaded.texts) == tuple(built.texts) == (
        "The mill was built in 1820.", "Dr. Émile Finn owned it.", "It burned down.", "Nobody knows"
    )  # fmt: skip
    assert tuple(loaded.passages) == built.passages == ((0,), (0,), (0, 1), (2,))
    assert loaded.texts[-1] == "Nobody knows"
    assert [loaded.texts[1], loaded.texts[2]] == ["Dr. Émile Finn owned it.", "It burned down."]
    with pytest.raises(IndexError):
        loaded.texts[4]
    assert loaded.origin == built.origin
    assert type(loaded.index) is type(built.index)
    for n in range(4):
        assert loaded.index.tokens(n).tolist() == built.index.tokens(n).tolist()
    one, other = (keys.index.follow(keys.index.start()[None]) for keys in (loaded, built))
    assert one.tokens.tolist() == other.tokens.tolist()


def test_what_does_not_fit_is_refused(corpus: Corpus, tokenizer: Any, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    stored(folder, corpus, tokenizer)
    fewer = Corpus.from_passages(PASSAGES[:2])
    other = train_tokenizer(tmp_path / "data", 60)
    raises(MismatchError, r"another corpus.*remove this folder", stored, folder, fewer, tokenizer)
    raises(MismatchError, "another tokenizer", stored, folder, corpus, other)
    with pytest.raises(MismatchError, match="kind 'sentence', expected 'paragraph'"):
        stored(folder, corpus, tokenizer, "paragraph")
    raises(MismatchError, "anywhere False, expected True", stored, folder, corpus, tokenizer, anywhere=True)
    raises(MismatchError, "markers", stored, folder, corpus, tokenizer, markers=("[", "]"))


def test_other_propositions_are_refused(corpus: Corpus, tokenizer: Any, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"passage": "a", "text": "the mill"}\n')
    stored(tmp_path / "props", corpus, tokenizer, "proposition", propositions=str(file))
    file.write_text('{"passage": "b", "text": "the mill"}\n')
    with pytest.raises(MismatchError, match="other propositions"):
        stored(tmp_path / "props", corpus, tokenizer, "proposition", propositions=str(file))


def test_damage_is_noticed(corpus: Corpus, tokenizer: Any, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    origin = build_keys(corpus, tokenizer).origin

    def damaged(file: str, content: bytes | None) -> None:
        build_keys(corpus, tokenizer).save(folder)
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(content)
        with pytest.raises(IndexFormatError, match=r"remove this folder and run the command again\.$"):
            Keys.load(folder, origin)

    changed = bytearray(_saved(corpus, tokenizer, folder, "texts.npy"))
    changed[-1] ^= 1
    damaged("texts.npy", bytes(changed))
    damaged("passages.npy", None)
    damaged("index/index.json", None)
    damaged("index/tokens.npy", b"")
    damaged("keys.json", b"{")
    damaged("keys.json", b'{"format": 9}')
    manifest = json.loads(_saved(corpus, tokenizer, folder, "keys.json"))
    damaged("keys.json", json.dumps(manifest | {"files": {}}).encode())
    damaged("keys.json", json.dumps(manifest | {"keys": 7}).encode())
    damaged("keys.json", None)


def _saved(corpus: Corpus, tokenizer: Any, folder: Path, file: str) -> bytes:
    build_keys(corpus, tokenizer).save(folder)
    return (folder / file).read_bytes()


def test_a_foreign_folder_is_left_alone(corpus: Corpus, tokenizer: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    raises(ConfigError, "is not replaced", stored, tmp_path / "mine", corpus, tokenizer)
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    with pytest.raises(WriteError):
        stored("/proc/nowhere/keys", corpus, tokenizer)
