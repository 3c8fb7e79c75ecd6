"""Propositions: written by small random models, read off outputs; their file, and the command."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from failing import raises
from llama_small import writing_model
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from grls.answer.riches.keys import build_keys
from grls.answer.riches.options import KeyOptions
from grls.answer.riches.propositions import (
    _EXAMPLES,
    PropositionFile,
    Propositionizer,
    PropositionPrompt,
    Propositions,
    parse_propositions,
)
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, MismatchError, WriteError
from grls.models.load.build import train_tokenizer

PASSAGES = [
    Passage("a", "The mill was built in 1820. It burned down.", "Mill"),
    Passage("b", "Rain fell on the red barn, and on the cow, and on all that stood there on Monday.", "Barn"),
    Passage("c", "", "Nothing"), Passage("d", "Who knows?"),
]  # fmt: skip
MILL = PASSAGES[0]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("text")
    shown = [Passage(f"e{n}", " ".join([p.text, *lines])) for n, (p, lines) in enumerate(_EXAMPLES)]
    Corpus.from_passages([*PASSAGES, *shown]).write(folder / "corpus.jsonl")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "Passage: Propositions: - . 0 9"}\n')
    return train_tokenizer(folder, 300)


def causal(tokenizer: Any) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, initializer_range=0.5,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def seq2seq(tokenizer: Any) -> Any:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        decoder_start_token_id=tokenizer.pad_token_id, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return T5ForConditionalGeneration(config).eval()


def outputs(writer: Propositionizer, passages: list[Passage]) -> list[tuple[str, bool]]:
    rows = [writer._without_end(row) for row in writer.prompt.inputs(writer.tokenizer, passages)]
    return list(writer._generate(rows))


@pytest.mark.parametrize("kind", [causal, seq2seq])
def test_a_batch_writes_what_each_writes_alone(tokenizer: Any, kind: Any) -> None:
    writer = Propositionizer(kind(tokenizer), tokenizer, max_new_tokens=12)
    some = [PASSAGES[0], PASSAGES[1], PASSAGES[3]]
    together = outputs(writer, some)
    assert len({text for text, _ in together}) > 1
    for passage, (text, _) in zip(some, together, strict=True):
        row = writer._without_end(writer.prompt.inputs(tokenizer, [passage])[0])
        start = 0 if writer.encoder_decoder else len(row)
        alone = writer.model.generate(
            input_ids=torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long),
            do_sample=False, max_new_tokens=12,
        )  # fmt: skip
        written = tokenizer.decode(alone[0, start:], skip_special_tokens=True)
        assert text == writer.prompt.lead + written


def test_nothing_usable_gives_sentences_or_nothing(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Propositionizer(causal(tokenizer), tokenizer)
    output = "- Mill:\n- The mill burned in 1999.", True
    monkeypatch.setattr(writer, "_generate", lambda rows: [output] * len(rows))
    dropped = {"other": 1, "invented": 1}
    first, _, empty, last = writer.write(PASSAGES)
    assert first == ("a", ("The mill was built in 1820.", "It burned down."), "sentences", dropped)
    assert empty == ("c", (), "sentences", {})
    assert last.texts == ("Who knows?",)
    writer.fallback = False
    assert writer.write(PASSAGES[:1])[0] == ("a", (), "model", dropped)


def test_a_passage_too_long_for_the_model_is_not_read(tokenizer: Any) -> None:
    model = causal(tokenizer)
    head = len(Propositionizer(model, tokenizer)._head)
    model.config.max_position_embeddings = head + 24
    writer = Propositionizer(model, tokenizer, max_new_tokens=4)
    short, long = writer.write([Passage("s", "Rain fell."), PASSAGES[1]])
    assert "unread" not in short.dropped
    assert (long.by, long.dropped) == ("sentences", {"unread": 1})
    with pytest.raises(ConfigError, match=r"prompt takes \d+ tokens.*max_new_tokens"):
        Propositionizer(model, tokenizer, max_new_tokens=24)


def test_options_that_cannot_work_are_refused(tokenizer: Any) -> None:
    raises(ConfigError, "at least 1", Propositionizer, causal(tokenizer), tokenizer, longest=0)
    with pytest.raises(ConfigError, match=r"needs \{text\}"):
        Propositionizer(causal(tokenizer), tokenizer, PropositionPrompt(template="{title}"))
    with pytest.raises(ConfigError, match="no chat template"):
        Propositionizer(causal(tokenizer), tokenizer, PropositionPrompt(chat=True))


def test_how_a_passage_is_told(tokenizer: Any) -> None:
    plain = PropositionPrompt(examples=False)
    assert plain.form(MILL) == "Mill. The mill was built in 1820. It burned down."
    assert plain.form(PASSAGES[3]) == "Who knows?"
    odd = Passage("x", "a {title}\nb", "{text}")
    form = PropositionPrompt(template="Title: {title}. Content: {text}").form(odd)
    assert form == "Title: {text}. Content: a {title} b"
    asked = tokenizer.decode(PropositionPrompt().inputs(tokenizer, [MILL])[0], skip_special_tokens=True)
    assert asked.count("Propositions:") == 3
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    turned = tokenizer.decode(PropositionPrompt(chat=True).inputs(tokenizer, [MILL])[0])
    tokenizer.chat_template = None
    assert turned.count("user") == 3
    one, other = PropositionPrompt(), PropositionPrompt(template="so: {text}")
    assert one.fingerprint(tokenizer) != other.fingerprint(tokenizer)


@pytest.mark.parametrize(("text", "texts", "dropped"), [
    ("- The mill burned.\n* It was built in 1820.\n", ["The mill burned.", "It was built in 1820."], {}),
    ("1. Mills burn.\n(2) It  was.\nb) So it is.", ["Mills burn.", "It was.", "So it is."], {}),
    ("1820 was its year.\nA mill burned.", ["1820 was its year.", "A mill burned."], {}),
    ("- So it is.\n\n- So it is.\n- Mill", ["So it is."], {"twice": 1, "other": 1}),
    ("Here they are:\n- The mill burned in 1821.\n- 1820", [], {"other": 2, "invented": 1}),
    (f"- {_EXAMPLES[0][1][0]}\n- {'so ' * 50}", [], {"copied": 1, "long": 1}),
    ('["The mill burned.", "It \\"stood\\"."]', ["The mill burned.", 'It "stood".'], {}),
    ('["The mill burned.", 5]', ["The mill burned."], {}),
    ("The mill burned. It was built in 1820.", ["The mill burned.", "It was built in 1820."], {}),
    ("", [], {}),
    ("  \n-\n", [], {}),
])  # fmt: skip
def test_propositions_are_read_off_an_output(text: str, texts: list[str], dropped: dict[str, int]) -> None:
    assert parse_propositions(text, True, MILL, longest=100) == (tuple(texts), dropped)


def test_a_title_is_no_proposition() -> None:
    told = Passage("x", "It stood there.", "The old mill.")
    assert parse_propositions("- The old Mill.\n- The old mill stood.", True, told) == (
        ("The old mill stood.",), {"other": 1},
    )  # fmt: skip


def test_what_the_length_limit_cut_is_left_out() -> None:
    assert parse_propositions("- The mill burned.\n- It was bui", False, MILL) == (
        ("The mill burned.",), {"cut": 1},
    )  # fmt: skip
    assert parse_propositions('["The mill burned.", "It was bui', False, MILL) == (
        ("The mill burned.",), {"cut": 1},
    )  # fmt: skip
    assert parse_propositions('["The mill burned.", "It \\q"', True, MILL) == (("The mill burned.",), {})


ORIGIN = {"weights": "w", "limit": None, "longest": 300}
FOUND = [
    Propositions("a", ("The mill burned.", "The mill — stood."), "model", {"twice": 2}),
    Propositions("b", (), "model", {"unread": 1}), Propositions("c", ("It burned.",), "sentences", {}),
]  # fmt: skip


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
    file = PropositionFile(tmp_path / "p.jsonl", ORIGIN)
    assert file.passages == {"a", "b", "c"}
    assert (file.propositions, file.sentences, file.none) == (3, 1, 1)
    assert file.dropped == {"twice": 2, "unread": 1}


def test_a_file_of_another_origin_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    whole = written(file)
    with pytest.raises(MismatchError, match=r"other settings \(longest: 300, now 20\).*another output"):
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


MILL_TEXTS = [f"The mill {'of rain ' * n}burned. It stood in 18{n}0." for n in range(5)]
MILLS = [Passage(f"p{n}", text, "Mill") for n, text in enumerate(MILL_TEXTS)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("propositions")
    Corpus.from_passages(MILLS).write(folder / "data" / "corpus.jsonl")
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
    keys = build_keys(Corpus.read(place / "data"), tokenizer, KeyOptions("proposition", False, str(output)))
    assert {p for some in keys.passages for p in some} == {0, 1, 2, 3, 4}
    assert run(place, output) == 0
    assert "in this run" not in capsys.readouterr().out


@pytest.mark.parametrize(("wrong", "message"), [
    (["--max_new_tokens", "9"], "other settings (max_new_tokens: 8, now 9)"),
    (["--limit", "3"], "settings (limit"),
    (["--template", "{text} ."], "settings (prompt"),
    (["--fallback", "false"], "settings (fallback"),
    (["--model", "other"], "settings (weights"),
    (["--data", "data2"], "settings (corpus"),
    (["--limit", "0"], "--limit must be"),
])  # fmt: skip
def test_other_options_are_refused(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], message: str
) -> None:
    output = tmp_path / "p.jsonl"
    PropositionFile(output, _origin(place))
    Corpus.from_passages(MILLS[:4]).write(place / "data2" / "corpus.jsonl")
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
