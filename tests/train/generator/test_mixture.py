"""Other examples among those of a stage, as shares of each epoch."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from failing import fails
from process_group import together
from small_data import scratch, write_jsonl, write_small
from train_helpers import AsPairs, arguments, callback, logged, train

from grls.cli import main
from grls.errors import ConfigError
from grls.train.core.datamodule import LengthBucketedSampler
from grls.train.core.examples import Example
from grls.train.generator.data import RetrieveData, planned_epochs
from grls.train.generator.examples import Mixture
from grls.train.options import Mix, PassageInput, RetrieveDataOptions, Shares


class Numbered:
    """Examples that show what was drawn: kind, number, epoch."""

    def __init__(self, kind: int, count: int):
        self.kind = kind
        self.count = count

    def __len__(self) -> int:
        return self.count

    def draw(self, number: int, epoch: int) -> Example:
        return Example([self.kind, number], [epoch])

    def lengths(self) -> list[int]:
        return [100 * self.kind + number for number in range(self.count)]


def mixture(*parts: tuple[int, Shares], count: int = 10, **options: Any) -> Mixture:
    others = [(Numbered(kind, size), shares) for kind, (size, shares) in enumerate(parts, 1)]
    return Mixture(Numbered(0, count), others, **options)


def kinds(some: Mixture, epoch: int) -> list[int]:
    found = Counter(some.draw(n, epoch).source[0] for n in range(len(some)))
    return [found[kind] for kind in range(len(some.members))]


def test_shares_fall_in_a_straight_line() -> None:
    some = mixture((50, (0.7, 0.2)), epochs=6)
    assert [kinds(some, epoch) for epoch in range(8)] == [
        [3, 7], [4, 6], [5, 5], [6, 4], [7, 3], [8, 2], [8, 2], [8, 2]
    ]  # fmt: skip
    assert [kinds(some, epoch) for epoch in range(8)] == [some.counts(epoch) for epoch in range(8)]
    assert len(some) == 10
    several = mixture((5, 0.3), (5, (0.1, 0.7)), epochs=3, size=20)
    assert [several.counts(epoch) for epoch in range(3)] == [[12, 6, 2], [6, 6, 8], [0, 6, 14]]
    assert mixture((5, (0.5, 0.1)), epochs=1).counts(0) == [5, 5]


def test_nothing_comes_twice_before_all_have_come_once() -> None:
    """Ten main examples, seven of another kind; each is drawn as in the turn that its stream has reached."""
    some = mixture((7, (0.6, 0.1)), epochs=5, seed=3)
    drawn = [some.draw(n, epoch) for epoch in range(9) for n in range(10)]
    for kind, count in (0, 10), (1, 7):
        stream = [e for e in drawn if e.source[0] == kind]
        for turn in range(len(stream) // count):
            part = stream[turn * count : (turn + 1) * count]
            assert sorted(e.source[1] for e in part) == list(range(count))
            assert {e.target[0] for e in part} == {turn}
        assert len(stream) > 2 * count


def test_lengths_are_those_of_the_epoch_and_batches_go_by_them() -> None:
    some = mixture((7, (0.6, 0.1)), epochs=4)
    for epoch in range(5):
        drawn = [some.draw(n, epoch).source for n in range(10)]
        assert list(some.lengths_in(epoch)) == [100 * kind + number for kind, number in drawn]
    assert some.lengths() == some.lengths_in(0)
    sampler = LengthBucketedSampler(some.lengths(), 2, pool=5, lengths_in=some.lengths_in)
    sampler.resume(3, 0)
    lengths = some.lengths_in(3)
    batches = [[lengths[n] for n, _ in batch] for batch in sampler]
    assert [length for batch in sorted(batches) for length in batch] == sorted(lengths)


def test_a_mix_that_cannot_be_is_refused() -> None:
    one: tuple[int, Shares] = (5, 0.5)
    for parts in ([(5, 1.2)], [(5, (0.1, -0.1))], [(5, (0.5, 0.6)), one], [(0, 0.5)]):
        with pytest.raises(ConfigError, match="mix"):
            mixture(*parts)  # type: ignore[arg-type]


def test_the_epochs_of_a_run_are_counted_from_epochs_or_steps() -> None:
    def planned(
        epochs: int | None, steps: int, accumulate: int = 1, size: int = 8, limit: float = 1.0
    ) -> int | None:
        trainer = SimpleNamespace(
            max_epochs=epochs, max_steps=steps, accumulate_grad_batches=accumulate, limit_train_batches=limit,
        )  # fmt: skip
        return planned_epochs(trainer, 100, size)  # 13 batches an epoch

    assert [planned(5, -1), planned(-1, 26), planned(-1, 27), planned(9, 27)] == [5, 2, 3, 3]
    assert planned(-1, 14, accumulate=2) == planned(-1, 14, size=16) == planned(-1, 26, limit=99) == 2
    assert [planned(-1, 26, limit=2), planned(-1, 26, limit=0.5)] == [13, 5]  # of 2 and of 6 batches
    assert planned(-1, -1) is planned(None, -1) is None


PSEUDO = [
    {"_id": "p1", "text": "who is calm ?", "evidence": ["lynx-calm"]},
    {"_id": "p2", "text": "what is proud ?", "evidence": ["badger-quick", "r1"]},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "pseudo.jsonl", PSEUDO)
    return write_small(tmp_path / "data")


def drawn(data: Path, mix: Mix, epochs: int = 4, **options: Any) -> RetrieveData:
    """The data module as a trainer would have set it up."""
    made = RetrieveData(RetrieveDataOptions(data=str(data), mix=mix, **options))
    made.trainer = SimpleNamespace(max_epochs=epochs, max_steps=-1, accumulate_grad_batches=1, world_size=1)
    made.read(
        SimpleNamespace(
            options=SimpleNamespace(loss="full", ranking=None),
            together=False,
            **scratch(data).load()._asdict(),
        )
    )
    return made


def test_pseudo_queries_and_memorisation_are_mixed_into_retrieval(data: Path, tmp_path: Path) -> None:
    """30 examples an epoch: 9 pseudo hops falling to 3, 6 passages by heart; no DONE of pseudo-queries."""
    pseudo = str(tmp_path / "pseudo.jsonl")
    mix = Mix(pseudo, (0.3, 0.1), memorise=PassageInput("whole", query=True), memorise_share=0.2)
    made = drawn(data, mix, shuffle=True)  # of the real evidence alone
    some = made.train_examples
    assert isinstance(some, Mixture)
    assert [len(member) for member in some.members] == [30, 3, 10]
    assert [some.counts(epoch) for epoch in (0, 3)] == [[15, 9, 6], [21, 3, 6]]
    codec, corpus = made.codec, made.corpus
    rows = dict(zip(corpus.ids(range(10)), map(list, codec.passages(list(corpus))), strict=True))
    texts = codec.texts([str(line["text"]) for line in PSEUDO])
    for epoch in range(8):
        assert [AsPairs(some.members[1], corpus).draw(n, epoch) for n in range(3)] == [
            Example(codec.model_input(texts[0]), rows["lynx-calm"]),
            Example(codec.model_input(texts[1]), rows["badger-quick"]),
            Example(codec.model_input(texts[1], [rows["badger-quick"]]), rows["r1"]),
        ]
    assert len(made.dev_examples) == len(drawn(data, Mix()).dev_examples)
    assert not isinstance(drawn(data, Mix()).train_examples, Mixture)
    assert len(drawn(data, Mix(pseudo, size=7)).train_examples) == 7


def test_a_run_with_a_mix_goes_on_to_the_same_losses(data: Path, tmp_path: Path) -> None:
    mix = [f"--data.mix.pseudo={tmp_path / 'pseudo.jsonl'}", "--data.mix.pseudo_share=[0.6,0.2]",
           "--data.mix.memorise.reads=whole", "--data.mix.memorise_share=0.1",
           "--model.schedule=constant", "--model.warmup=0"]  # fmt: skip
    whole = logged(train("retrieve", data, tmp_path / "whole", *mix, "--data.workers=1"), "train_loss")
    assert sorted(whole) == list(range(24))
    often = "--last.every_n_train_steps=5"
    killed = arguments(
        "retrieve", data, tmp_path / "cut", *mix, often, callback("train_helpers.KillAfter", batches=18)
    )
    assert together(1, lambda: main(["train", *killed]))[0] < 0
    rest = logged(train("retrieve", data, tmp_path / "cut", *mix, "--resume=true"), "train_loss", version=1)
    assert sorted(rest) == list(range(15, 24))  # in the midst of the second epoch
    assert rest == pytest.approx({step: whole[step] for step in rest}, abs=1e-6)


@pytest.mark.parametrize(
    ("lines", "options", "named"),
    [
        ([{"_id": "p", "text": "who ?"}], [], "'p' has no evidence to learn"),
        ([{"_id": "p", "text": "who ?", "evidence": ["gone"]}], [], "gold passage 'gone' of query 'p'"),
        (
            PSEUDO,
            ["--data.mix.pseudo_share=[0.5,0.2]", "--trainer.max_epochs=-1", "--model.schedule=constant",
             "--model.warmup=0"],
            "shares that change need the number of epochs",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_mixed_in_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: Any, options: list[str], named: str
) -> None:
    file = write_jsonl(tmp_path / "some.jsonl", lines)
    folder = write_small(tmp_path / "data")
    given = arguments("retrieve", folder, tmp_path / "run", f"--data.mix.pseudo={file}", *options)
    assert named in fails(capsys, "train", *given)
