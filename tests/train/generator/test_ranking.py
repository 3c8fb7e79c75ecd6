"""Learning to order candidates: which there are, their scores, the losses by hand, and runs of a training."""

import math
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from failing import fails
from models_small import log_probability
from process_group import together
from torch import tensor
from train_helpers import callback, chain_module, chain_options, logged

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Chain, Hit
from grls.models.load.generators import CausalLM
from grls.runs.portions import RunInfo
from grls.runs.run import Run
from grls.train.generator.data import RetrieveData
from grls.train.generator.loss import dpo_loss, kto_loss, listwise_loss, margin_loss
from grls.train.options import CandidateOptions, Ranking, RetrieveDataOptions, WriteSpans

# Two hops: a right and two wrong candidates, a right and a wrong one.
HOPS = tensor([0, 0, 0, 1, 1])
RIGHT = tensor([True, False, False, True, False])
VALUES = tensor([0.5, -0.5, 0.2, -1.0, 1.0], dtype=torch.float64)


def test_the_losses_by_hand() -> None:
    def close(found: torch.Tensor, expected: float) -> None:
        assert float(found.detach()) == pytest.approx(expected, abs=1e-6)

    # log(1 + exp(-x)) of x = 0.5 * (1.0, 0.3) and of 0.5 * -2.0.
    close(dpo_loss(VALUES, HOPS, RIGHT, 0.5), ((0.474077 + 0.620957) / 2 + 1.313262) / 2)
    # max(0, 0.8 - x) of x = 1.0, 0.3 and of -2.0.
    close(margin_loss(VALUES, HOPS, RIGHT, 0.8), ((0 + 0.5) / 2 + 2.8) / 2)
    # exp: 1.648721, 0.606531, 1.221403 and 0.367879, 2.718282.
    first, second = math.log(3.476655 / 1.648721), math.log(3.086161 / 0.367879)
    close(listwise_loss(VALUES, HOPS, RIGHT), (first + second) / 2)
    # z = 0.1; 2 sigmoid(-0.5 * 0.4) of the right one, sigmoid(0.5 * (-0.6, 0.1)) of the wrong ones; then
    # 2 sigmoid(0.5 * 1.1) and sigmoid(0.5 * 0.9).
    first = (2 * 0.4501660 + 0.4255575 + 0.5124974) / 3
    second = (2 * 0.6341356 + 0.6106392) / 2
    others = tensor([0.3, -0.1], dtype=torch.float64, requires_grad=True)
    found = kto_loss(VALUES.clone().requires_grad_(), others, HOPS, RIGHT, 0.5, 2.0)
    close(found, (first + second) / 2)
    found.backward()
    assert others.grad is None  # the zero has no gradient
    # A zero below 0 is 0.
    below = kto_loss(VALUES, -others, HOPS, RIGHT, 0.5, 1.0)
    close(below, float(kto_loss(VALUES, others[:0].detach(), HOPS, RIGHT, 0.5, 1.0)))


def test_dpo_and_kto_are_those_of_trl() -> None:
    """Its trainers' own losses, of log-probabilities that a stand-in for the model gives."""
    reason = "compares with trl, which no extra brings: pip install trl"
    dpo = pytest.importorskip("trl.trainer.dpo_trainer", reason=reason).DPOTrainer
    kto = pytest.importorskip("trl.trainer.kto_trainer", reason=reason).KTOTrainer
    draw = torch.Generator().manual_seed(5)
    own, reference = -9 * torch.rand(2, 8, generator=draw, dtype=torch.float64)
    trainer = MagicMock(
        beta=0.3, ld_alpha=None, aux_loss_enabled=False, precompute_ref_logps=True, use_weighting=False,
        f_divergence_type="reverse_kl", loss_types=["sigmoid"], loss_weights=[1.0],
        _total_train_tokens=0, _tp_size=1, loss_type="kto", calculate_KL=True,
        desirable_weight=1.5, undesirable_weight=1.0,
    )  # fmt: skip
    trainer.accelerator.device = "cpu"
    trainer.accelerator.gather_for_metrics = lambda value: value

    def theirs(of: Any, scores: torch.Tensor, **inputs: Any) -> float:
        none = torch.zeros_like(scores)[:, None]  # what it logs of tokens
        out = MagicMock(log_probs=scores[:, None], entropy=none, mean_logits=none, is_top1=none.bool())
        tokens = torch.ones(len(scores), 2, dtype=torch.long)
        inputs |= {"input_ids": tokens, "completion_mask": tokens, "attention_mask": tokens}
        return float(of._compute_loss(trainer, lambda **_: out, inputs, False))

    hops, right = torch.arange(4).repeat_interleave(2), tensor([True, False]).repeat(4)
    references = {"ref_chosen_logps": reference[right], "ref_rejected_logps": reference[~right]}
    expected = theirs(dpo, torch.cat((own[right], own[~right])), **references)
    assert float(dpo_loss(own - reference, hops, right, 0.3)) == pytest.approx(expected, abs=1e-12)

    others, other_reference = own[5:] + 4, reference[5:]
    trainer._compute_kl_logps = lambda *_: others
    references = {"label": right[:5], "ref_logps": reference[:5], "ref_KL_logps": other_reference}
    expected = theirs(kto, own[:5], **references)
    found = kto_loss(own[:5] - reference[:5], others - other_reference, hops[:5] * 0, right[:5], 0.3, 1.5)
    assert float(found) == pytest.approx(expected, abs=1e-12)


def some_run(folder: Path, **more: Any) -> str:
    """Train queries rank the facts of their animal first; or chains, half of which end wrongly."""
    corpus, (queries, _) = Corpus.read(folder / "data"), read_split(folder / "data", "train")
    names = [passage.id for passage in corpus]
    rankings, chains = {}, {}
    for number, query in enumerate(queries):
        animal = query.text.split()[2]
        ids = sorted(names, key=lambda name: not name.startswith(animal))
        rankings[query.id] = [Hit(name, -float(n)) for n, name in enumerate(ids)]
        chains[query.id] = Chain(tuple(rankings[query.id][: 2 - number % 2]), -1.0, True)
    fields = {"steps": "single", "corpus": corpus.fingerprint, "split": "train", **more}
    info = RunInfo("generator", "some", queries="", data="data", score_mode="renormalized", **fields)
    of_hops = info.steps == "dynamic"
    run = Run.of(None if of_hops else rankings, chains if of_hops else {}, info)
    run.save(folder / "some-run", queries, corpus)
    return str(folder / "some-run.jsonl")


@pytest.fixture
def place(root: Path, tmp_path: Path) -> Path:
    """A copy of what trainings start from, with a run ``some-run``."""
    for name in ("data", "llama"):
        shutil.copytree(root / name, tmp_path / name)
    some_run(tmp_path)
    return tmp_path


def read(place: Path, loss: str = "margin", wrong: int = 3, **options: Any) -> tuple[RetrieveData, Any]:
    candidates = CandidateOptions(str(place / "some-run.jsonl"), wrong)
    data = RetrieveData(RetrieveDataOptions(data=str(place / "data"), candidates=candidates, **options))
    model = options.pop("model", {})
    module = chain_module(CausalLM(str(place / "llama")), ranking=Ranking(loss), **model)  # type: ignore[arg-type]
    module.model.eval()
    data.read(module)
    return data, module


@pytest.mark.parametrize("together", [True, False])
def test_the_score_of_a_candidate_is_its_log_probability(place: Path, together: bool) -> None:
    data, module = read(place)
    module.together = together
    data.read(module)
    hops = [hop for n in range(4) for hop in data.train_examples.draw(n, 0)]
    batch = data.collator([data.train_examples.draw(n, 0) for n in range(4)])
    with torch.no_grad():
        found = module._candidate_scores(batch)
    ranked, listed = batch.ranked, data.collator.candidates.listed
    expected, right = [], []
    for hop in hops:
        for passage in listed.get((hop.query, hop.evidence), ()):
            expected.append(log_probability(module.model, data.index, hop.source, passage))
            right.append(passage in hop.gold)
    assert len(expected) == 4 * sum(not hop.evidence for hop in hops)  # a right and three wrong ones
    assert ranked.right.tolist() == right
    torch.testing.assert_close(found, tensor(expected), rtol=1e-4, atol=1e-4)


def test_candidates_of_spans_and_of_the_whole_vocabulary(place: Path) -> None:
    """Of a passage with several spans it is the mean; under ``full``, every token has its place."""
    data, module = read(place, spans=WriteSpans(3, drawn=2))
    example = data.train_examples.draw(0, 0)
    parts = module.model, data.index, example[0].source
    with torch.no_grad():
        found = module._candidate_scores(data.collator([example]))
    candidates = data.collator.candidates
    for passage, score in zip(candidates.listed[example[0].query, ()], found, strict=True):
        spans = candidates.teaching.sequences(example[0], passage)
        assert len({*spans}) == 2
        expected = sum(log_probability(*parts, span) for span in spans) / 2
        assert float(score) == pytest.approx(expected, rel=1e-4)

    data, module = read(place)
    data.collator = data.collator.__class__(**{**vars(data.collator), "full": True})
    example = data.train_examples.draw(0, 0)
    batch = data.collator([example])
    with torch.no_grad():
        found = module._candidate_scores(batch)
        for passage, score in zip(data.collator.candidates.listed[example[0].query, ()], found, strict=True):
            row = data.index.tokens(passage).tolist()
            read_tokens = tensor([[*example[0].source, *row]])
            logs = module.model(input_ids=read_tokens).logits[0].log_softmax(-1)
            first = len(example[0].source) - 1
            expected = sum(logs[first + n, token] for n, token in enumerate(row))
            assert float(score) == pytest.approx(float(expected), abs=1e-3)


def test_which_candidates_there_are(place: Path) -> None:
    data, _ = read(place, loss="kto")
    candidates = data.collator.candidates
    assert {evidence for _, evidence in candidates.listed} == {()}  # a ranking is of the first hop
    numbers = [
        n for there in (candidates.listed, candidates.others) for one in there.values() for n in one.values()
    ]
    assert sorted(numbers) == list(range(candidates.count))
    queries, _ = read_split(place / "data", "train")
    ids = [passage.id for passage in data.corpus]
    for query in queries:
        right, *wrong = (ids[n] for n in candidates.listed[query.text, ()])
        assert right == query.evidence[0]
        assert not {*wrong} & {*query.evidence}
        assert len(wrong) == 3
        (other,) = candidates.others[query.text, ()]
        assert ids[other] not in query.evidence

    # A chain has a candidate for each hop, DONE among them.
    some_run(place, steps="dynamic")
    data, _ = read(place)
    end = len(data.corpus)
    hops = [hop for n in range(len(queries)) for hop in data.train_examples.draw(n, 0)]
    batch = data.collator([data.train_examples.draw(n, 0) for n in range(len(queries))])
    listed = data.collator.candidates.listed
    assert {len(evidence) for _, evidence in listed} == {0, 1}
    assert min(map(len, listed.values())) == 2
    assert any([*there][1:] == [end] for there in listed.values())  # it ends too early
    assert any(next(iter(there)) == end for there in listed.values())  # it does not end
    assert batch.ranked.hop_count == sum((hop.query, hop.evidence) in listed for hop in hops)

    # Where the order is drawn anew, the first hop alone has some.
    data, _ = read(place, shuffle=True)
    assert {evidence for _, evidence in data.collator.candidates.listed} == {()}


LOSSES = ("dpo", "kto", "margin", "listwise")


@pytest.mark.parametrize("loss", LOSSES)
def test_right_candidates_rise_above_wrong_ones(place: Path, loss: str) -> None:
    torch.manual_seed(0)
    data, module = read(place, loss, multistep=False, done=False)
    module.options = module.options.__class__(
        generator=module.options.generator,
        ranking=Ranking(loss, beta=1.0, cross_entropy=0.0),  # type: ignore[arg-type]
    )
    batch = data.collator([data.train_examples.draw(n, 0) for n in range(len(data.train_examples))])
    module._reference = torch.zeros(data.collator.candidates.count)
    with torch.no_grad():
        module._reference[batch.ranked.numbers] = module._candidate_scores(batch)

    def lead() -> float:
        with torch.no_grad():
            scores = module._candidate_scores(batch)[: len(batch.ranked.hops)]
        return float(-margin_loss(scores, batch.ranked.hops, batch.ranked.right, 100.0))

    before, optimizer = lead(), torch.optim.AdamW(module.parameters(), lr=1e-2)
    for _ in range(12):
        optimizer.zero_grad()
        module.batch_loss(batch).backward()
        optimizer.step()
    assert lead() > before + 0.5


def options(place: Path, name: str, loss: str, *more: str, t5: bool = False) -> list[str]:
    recipe = f"--config=configs/{loss}.yaml"
    run = f"--data.candidates.run={place / 'some-run.jsonl'}"
    given = chain_options(place, place / name, run, *more, t5=t5)
    return [*given[:3], recipe, *given[3:]]


@pytest.mark.parametrize(
    ("loss", "t5"), [("dpo", False), ("kto", True), ("margin", True), ("listwise", False)]
)
def test_the_recipes(place: Path, loss: str, t5: bool) -> None:
    assert main(options(place, "out", loss, "--trainer.max_epochs=1", t5=t5)) == 0
    assert (place / "out" / "model" / "config.json").is_file()
    losses = logged(place / "out", "train_loss")
    if loss == "dpo":  # before the first step the model is its own reference
        assert losses[0] == pytest.approx(math.log(2), abs=1e-5)


def test_a_resumed_run_has_the_same_reference(place: Path) -> None:
    """It goes on to the losses of a run that was not killed."""
    often = ("--last.every_n_train_steps=2", "--model.schedule=constant", "--model.warmup=0")
    assert main(options(place, "whole", "dpo", *often)) == 0
    killed = callback("train_helpers.KillAfter", batches=4)
    assert together(1, lambda: main(options(place, "killed", "dpo", *often, killed)))[0] < 0
    assert main(options(place, "killed", "dpo", *often, "--resume=true")) == 0
    losses, rest = logged(place / "whole", "train_loss"), logged(place / "killed", "train_loss", version=1)
    assert min(rest) > 0
    assert rest == pytest.approx({step: losses[step] for step in rest}, abs=1e-6)
    last = torch.load(place / "killed" / "checkpoints" / "last.ckpt", weights_only=True)
    begun = torch.load(place / "whole" / "checkpoints" / "last.ckpt", weights_only=True)
    torch.testing.assert_close(last["reference"], begun["reference"])


def test_what_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*given: str, loss: str = "dpo") -> str:
        return fails(capsys, *options(place, "out", loss, *given))

    assert "--model.ranking.beta" in refused("--model.ranking.beta=0")
    assert "--model.ranking.right_weight" in refused("--model.ranking.right_weight=-1", loss="kto")
    assert "set both, or neither" in refused("--data.candidates=null")
    some_run(place, corpus="another")
    assert "is a run over the corpus of data" in refused()
    run = place / "some-run.trec"
    for text, named in (
        ("q-nobody Q0 otter-calm 1 1.0 x\n", "it answers none of the 12 training queries"),
        ("q-otter-calm Q0 nowhere 1 1.0 x\n", "passage 'nowhere' is not in"),
        (
            "q-otter-calm Q0 otter-calm 1 1.0 x\n",
            "it has no wrong passage for any of the 12 training queries",
        ),
    ):
        run.write_text(text)
        (place / "some-run.info.json").unlink(missing_ok=True)
        assert named in refused(f"--data.candidates.run={run}")
