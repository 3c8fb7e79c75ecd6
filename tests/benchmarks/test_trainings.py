"""The command of the public sets' trainings: what is listed, printed, run and refused.

Each training is run in ``tests/test_configs.py``.
"""

import pytest

from benchmarks import trainings
from benchmarks.trainings import TRAININGS, main


def test_what_follows_is_an_option_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(trainings, "grls", lambda command: ran.append(command) or 3)
    more = ["--trainer.max_steps", "-1", "--data.mix.pseudo_share", "[0.8, 0.3]"]
    assert main(["strategyqa", "retrieve", *more]) == 3
    layers = ["--config", "configs/retrieve.yaml", "--config", "configs/local/retrieve.yaml"]
    own = ["--data.data=data/strategyqa", "--model.generator.name_or_path=runs/strategyqa/memorise/model",
           "--trainer.max_epochs=3", "--output=runs/strategyqa/retrieve"]  # fmt: skip
    assert ran == [["train", "retrieve", *layers, *own, *more]]
    assert "grls train retrieve --config configs/retrieve.yaml " in capsys.readouterr().out
    assert main(["nq", "biencoder", "--dry_run", "true"]) == 0
    assert capsys.readouterr().out.startswith("grls train biencoder --config configs/biencoder.yaml ")
    assert len(ran) == 1


def test_they_are_listed_and_others_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == list(TRAININGS)
    assert "nq: memorise, retrieve, biencoder, spans, spans-pseudo, query-generator" in lines
    for name, run in (("nq", "riches"), ("nowhere", "spans")):
        with pytest.raises(SystemExit, match=f"no training '{run}' of '{name}'"):
            main([name, run])
