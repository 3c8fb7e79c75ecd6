"""The file of propositions: resumed, and refused where it does not fit; and the command that writes it."""

import json
from pathlib import Path
from typing import Any

import pytest
from failing import raises
from transformers import AutoTokenizer
from writing_models import writing_model

from grls.answer.riches.keys import build_keys
from grls.answer.riches.propositions import PropositionFile, Propositions
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import DataError, MismatchError, WriteError

ORIGIN = {"weights": "w", "limit": None, "longest": 300}
FOUND = [
    Propositions("a", ("The mill burned.", "The mill — stood."), "model", {"twice": 2}),
    Propositions("b", (), "model", {"unread": 1}),
    Propositions("c", ("It burned.",), "sentences", {}),
]


def written(file: Path) -> bytes:
    grown = PropositionFile(file, ORIGIN)
    grown.append(FOUND[:2])
    grown.append(FOUND[2:])
    return file.read_bytes()


def test_every_cut_is_taken_up_to_the_same_file(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.jsonl")
    file = tmp_path / "cut.jsonl"
    PropositionFile(file, ORIGIN)
    for length in range(len(whole) + 1):
        file.write_bytes(whole[:length])
        again = PropositionFile(file, ORIGIN)
        assert whole.startswith(file.read_bytes())
        again.append(FOUND[:2])
        again.append(FOUND)
        assert file.read_bytes() == whole, length


def test_a_file_is_counted(tmp_path: Path) -> None:
    written(tmp_path / "p.jsonl")
    tally = PropositionFile(tmp_path / "p.jsonl", ORIGIN).tally
    assert tally.passages == {"a", "b", "c"}
    assert (tally.propositions, tally.sentences, tally.none) == (3, 1, 1)
    assert tally.dropped == {"twice": 2, "unread": 1}


def test_a_file_of_another_origin_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    whole = written(file)
    with pytest.raises(MismatchError, match=r"another longest \(300, now 20\).*another output"):
        PropositionFile(file, ORIGIN | {"longest": 20})
    assert file.read_bytes() == whole
    manifest = tmp_path / "p.jsonl.manifest.json"
    manifest.write_text('{"format": 7}')
    raises(DataError, "format 1", PropositionFile, file, ORIGIN)
    manifest.unlink()
    raises(DataError, "no manifest", PropositionFile, file, ORIGIN)
    with pytest.raises(WriteError):
        PropositionFile("/proc/nowhere/p.jsonl", ORIGIN)


@pytest.mark.parametrize("damage", ["gap", "json", "twice", "other", "dropped"])
def test_a_damaged_line_is_named(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "p.jsonl"
    written(file)
    lines = file.read_text("utf-8").splitlines(keepends=True)
    changed = {
        "gap": lines[1:],
        "json": ["{\n", *lines],
        "twice": [*lines, *lines[:2]],
        "other": [lines[0], lines[3], *lines],
        "dropped": [lines[0].replace('"dropped"', '"lost"'), *lines[1:]],
    }[damage]
    file.write_text("".join(changed), "utf-8")
    line = {"twice": 5, "other": 2}.get(damage, 1)
    raises(DataError, rf"p\.jsonl, line {line}: expected the next proposition", PropositionFile, file, ORIGIN)


TEXTS = [f"The mill {'of rain ' * n}burned. It stood in 18{n}0." for n in range(5)]
PASSAGES = [Passage(f"p{n}", text, "Mill") for n, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("propositions")
    Corpus.from_passages(PASSAGES).write(folder / "data" / "corpus.jsonl")
    (folder / "data" / "queries.jsonl").write_text('{"_id": "q", "text": "so"}\n')
    for name, seed in (("model", 0), ("other", 1)):
        writing_model(folder / "data", folder / name, 2048, seed)
    return folder


def run(place: Path, output: Path, *more: str) -> int:
    base = ["--data", str(place / "data"), "--model", str(place / "model"), "--output", str(output)]
    small = ["--device", "cpu", "--max_new_tokens", "8", "--batch_size", "2"]
    return main(["prepare", "propositions", *base, *small, *more])


def test_the_command_writes_keys(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "p.jsonl"
    assert run(place, output) == 0
    printed = capsys.readouterr().out
    assert "5 passages" in printed
    assert "5 passages in this run" in printed
    lines = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert [line["passage"] for line in lines if line["part"] == 1] == ["p4", "p3", "p2", "p1", "p0"]
    tokenizer = AutoTokenizer.from_pretrained(place / "model")
    keys = build_keys(Corpus.read(place / "data"), tokenizer, "proposition", propositions=output)
    assert {p for some in keys.passages for p in some} == {0, 1, 2, 3, 4}
    assert run(place, output) == 0
    assert "in this run" not in capsys.readouterr().out


@pytest.mark.parametrize(("wrong", "message"), [
    (["--max_new_tokens", "9"], "another max_new_tokens (8, now 9)"),
    (["--limit", "3"], "another limit"),
    (["--template", "{text} ."], "another prompt"),
    (["--fallback", "false"], "another fallback"),
    (["--model", "other"], "another weights"),
    (["--data", "data2"], "another corpus"),
    (["--limit", "0"], "--limit must be"),
    (["--batch_size", "0"], "--batch_size must be"),
    (["--chat", "true"], "no chat template"),
])  # fmt: skip
def test_other_options_are_refused(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], message: str
) -> None:
    output = tmp_path / "p.jsonl"
    PropositionFile(output, _origin(place))
    Corpus.from_passages(PASSAGES[:4]).write(place / "data2" / "corpus.jsonl")
    given = [str(place / option) if option in ("other", "data2") else option for option in wrong]
    assert run(place, output, *given) == 1
    assert message in capsys.readouterr().err


def _origin(place: Path) -> dict[str, Any]:
    """What the command notes of a run with the options above."""
    first = place / "first.jsonl"
    manifest = place / "first.jsonl.manifest.json"
    if not manifest.is_file():
        assert run(place, first) == 0
    noted = json.loads(manifest.read_text())
    noted.pop("format")
    return dict(noted)
