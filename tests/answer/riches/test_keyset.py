"""Keys in a folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from failing import raises

from grls.answer.riches import keys as module
from grls.answer.riches.keys import Keys, build_keys, keys_in
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError, IndexFormatError, MismatchError, WriteError
from grls.models.load.build import train_tokenizer

PASSAGES = [
    Passage("a", "The mill was built in 1820. It burned down.", "Mill"),
    Passage("b", "It burned down. So did the Élan.", "Barn"), Passage("c", "Nobody knows", "Mill"),
]  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    file = tmp_path / "data" / "corpus.jsonl"
    Corpus.from_passages(PASSAGES).write(file)
    return Corpus.read(file)


@pytest.fixture
def tokenizer(corpus: Corpus, tmp_path: Path) -> Any:
    (tmp_path / "data" / "queries.jsonl").write_text('{"_id": "q", "text": "« who » : [ ]"}\n', "utf-8")
    return train_tokenizer(tmp_path / "data", 300)


@pytest.mark.parametrize("anywhere", [False, True])
def test_keys_come_back_without_a_tokenizer(
    corpus: Corpus, tokenizer: Any, tmp_path: Path, anywhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = keys_in(tmp_path / "keys", corpus, tokenizer, "sentence", anywhere)
    monkeypatch.setattr(module, "encoded_texts", lambda *_: pytest.fail("the corpus was tokenized again"))
    loaded = keys_in(tmp_path / "keys", corpus, tokenizer, "sentence", anywhere)
    assert tuple(loaded.texts) == tuple(built.texts) == (
        "The mill was built in 1820.", "It burned down.", "So did the Élan.", "Nobody knows"
    )  # fmt: skip
    assert tuple(loaded.passages) == built.passages == ((0,), (0, 1), (1,), (2,))
    assert loaded.texts[-1] == "Nobody knows"
    assert [loaded.texts[1], loaded.texts[2]] == ["It burned down.", "So did the Élan."]
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
    keys_in(folder, corpus, tokenizer)
    fewer = Corpus.from_passages(PASSAGES[:2])
    other = train_tokenizer(tmp_path / "data", 60)
    raises(MismatchError, r"another corpus.*remove this folder", keys_in, folder, fewer, tokenizer)
    raises(MismatchError, "another tokenizer", keys_in, folder, corpus, other)
    with pytest.raises(MismatchError, match="kind 'sentence', expected 'paragraph'"):
        keys_in(folder, corpus, tokenizer, "paragraph")
    raises(MismatchError, "anywhere False, expected True", keys_in, folder, corpus, tokenizer, anywhere=True)
    raises(MismatchError, "markers", keys_in, folder, corpus, tokenizer, markers=("[", "]"))


def test_other_propositions_or_sections_are_refused(corpus: Corpus, tokenizer: Any, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"passage": "a", "text": "the mill"}\n')
    keys_in(tmp_path / "props", corpus, tokenizer, "proposition", propositions=file)
    file.write_text('{"passage": "b", "text": "the mill"}\n')
    with pytest.raises(MismatchError, match="other propositions or sections"):
        keys_in(tmp_path / "props", corpus, tokenizer, "proposition", propositions=file)
    keys_in(tmp_path / "headers", corpus, tokenizer, "header")
    lines = [json.loads(line) for line in (tmp_path / "data" / "corpus.jsonl").read_text().splitlines()]
    lines[0]["metadata"] = {"section": "It"}
    (tmp_path / "data" / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    changed = Corpus.read(tmp_path / "data")
    assert changed.fingerprint == corpus.fingerprint
    with pytest.raises(MismatchError, match="other propositions or sections"):
        keys_in(tmp_path / "headers", changed, tokenizer, "header")


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
    raises(ConfigError, "is not replaced", keys_in, tmp_path / "mine", corpus, tokenizer)
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    with pytest.raises(WriteError):
        keys_in("/proc/nowhere/keys", corpus, tokenizer)
