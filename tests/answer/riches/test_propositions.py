"""Propositions: written by small random models, read off outputs; the command."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from llama_small import writing_model
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from grls.answer.riches.keys import build_keys
from grls.answer.riches.options import KeyOptions
from grls.answer.riches.propositions import (
    _EXAMPLES,
    Propositionizer,
    PropositionPrompt,
    parse_propositions,
)
from grls.answer.writer import Continuation, TextWriter
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError
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


CORPUS = Corpus.from_passages(PASSAGES)


def writer(
    model: Any, tokenizer: Any, prompt: PropositionPrompt | None = None, length: int = 256, **more: Any
) -> Propositionizer:
    prompt = prompt or PropositionPrompt(examples=not model.config.is_encoder_decoder)
    texts = TextWriter(model, tokenizer, length, 8, prompt.stops, prompt.repeats, prompt.head(tokenizer))
    return Propositionizer(texts, prompt, CORPUS, **more)


def test_nothing_usable_gives_sentences_or_nothing(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(causal(tokenizer), tokenizer)
    output = Continuation("Mill:\n- The mill burned in 1999.", (), True)
    monkeypatch.setattr(TextWriter, "write", lambda self, rows, *_: [output] * len(rows))
    dropped = {"other": 1, "invented": 1}
    first, _, empty, last = made.write(range(4))
    texts = ["The mill was built in 1820.", "It burned down."]
    assert first == {"passage": "a", "texts": texts, "by": "sentences", "dropped": dropped}
    assert empty == {"passage": "c", "texts": [], "by": "sentences", "dropped": {}}
    assert last["texts"] == ["Who knows?"]


def test_a_model_that_repeats_a_line_is_stopped() -> None:
    prompt = PropositionPrompt()
    assert not prompt.repeats("The mill burned.\n- The mill burned.")
    assert prompt.repeats("The mill burned.\n- The mill burned.\n")
    assert prompt.repeats("It was.\n- The mill burned.\n\n- The mill burned.\n- so")
    assert not prompt.repeats("The mill burned.\n- It was.\n")


def test_a_passage_too_long_for_the_model_is_not_read(tokenizer: Any) -> None:
    model = causal(tokenizer)
    head = len(PropositionPrompt().head(tokenizer))
    model.config.max_position_embeddings = head + 24
    short, long = writer(model, tokenizer, length=4).write([3, 1])
    assert "unread" not in short["dropped"]
    assert (long["by"], long["dropped"]) == ("sentences", {"unread": 1})
    with pytest.raises(ConfigError, match=r"prompt takes \d+ tokens.*max_new_tokens"):
        writer(model, tokenizer, length=24).write([1])


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
    (f"- {_EXAMPLES[0][1][0]}\n- {'so ' * 101}", [], {"copied": 1, "long": 1}),
    ('["The mill burned.", "It \\"stood\\"."]', ["The mill burned.", 'It "stood".'], {}),
    ('["The mill burned.", 5]', ["The mill burned."], {}),
    ("The mill burned. It was built in 1820.", ["The mill burned.", "It was built in 1820."], {}),
    ("", [], {}),
    ("  \n-\n", [], {}),
])  # fmt: skip
def test_propositions_are_read_off_an_output(text: str, texts: list[str], dropped: dict[str, int]) -> None:
    assert parse_propositions(text, True, MILL) == (tuple(texts), dropped)


def test_what_the_length_limit_cut_is_left_out() -> None:
    assert parse_propositions("- The mill burned.\n- It was bui", False, MILL) == (
        ("The mill burned.",), {"cut": 1},
    )  # fmt: skip
    assert parse_propositions('["The mill burned.", "It was bui', False, MILL) == (
        ("The mill burned.",), {"cut": 1},
    )  # fmt: skip
    assert parse_propositions('["The mill burned.", "It \\q"', True, MILL) == (("The mill burned.",), {})


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
    whole = output.read_bytes()
    growing = Path(f"{output}.written.jsonl")
    lines = growing.read_bytes().splitlines(keepends=True)
    growing.write_bytes(b"".join(lines[:4]) + lines[4][:9])  # of a run that was killed
    output.unlink()
    assert run(place, output) == 0
    assert "3 passages in this run" in capsys.readouterr().out  # two are done together
    assert output.read_bytes() == whole
    assert run(place, output) == 0
    assert "in this run" not in capsys.readouterr().out


@pytest.mark.parametrize(("wrong", "message"), [
    (["--max_new_tokens", "9"], "other settings (max_new_tokens)"),
    (["--limit", "3"], "settings (limit"),
    (["--template", "{text} ."], "settings (prompt"),
    (["--model", "other"], "settings (weights"),
    (["--data", "data2"], "settings (corpus"),
    (["--limit", "0"], "--limit must be"),
    (["--batch_size", "0"], "--batch_size must be"),
])  # fmt: skip
def test_other_options_are_refused(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], message: str
) -> None:
    output = tmp_path / "p.jsonl"
    for file in _first(place):
        shutil.copy(file, tmp_path / file.name.replace("first", "p"))
    Corpus.from_passages(MILLS[:4]).write(place / "data2" / "corpus.jsonl")
    given = [str(place / option) if option in ("other", "data2") else option for option in wrong]
    assert run(place, output, *given) == 1
    assert message in capsys.readouterr().err


def _first(place: Path) -> list[Path]:
    """The files of a run with the options above."""
    if not (place / "first.jsonl").is_file():
        assert run(place, place / "first.jsonl") == 0
    return sorted(place.glob("first.jsonl*"))
