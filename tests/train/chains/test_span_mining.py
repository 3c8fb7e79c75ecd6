"""Hard negatives of generators that write spans: of which passages, which span, and what is learned."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from failing import fails
from models_small import log_probability
from small_data import queries, scratch
from train_helpers import chain_options, logged

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.models.load.language import CausalLM
from grls.train.chains.collate import ChainCollator
from grls.train.chains.data import ChainData
from grls.train.chains.examples import ChainExample, WriteSpans
from grls.train.chains.mining import MineNegatives
from grls.train.chains.module import RetrieveChains, margin_loss, taken_scores

KINDS = ["causal", "sequence"]
WORDS = 3


@pytest.fixture(scope="module")
def root(root: Path) -> Path:
    """In ``copied`` the small data set, with a copy of a gold passage under another id."""
    passages = [*Corpus.read(root / "data")]
    copy = passages[0]._replace(id="copy")
    every = queries()
    qrels = {"train": {q.id: dict.fromkeys(q.evidence, 1) for q in every[:12]}}
    write_dataset(root / "copied", [*passages, copy], every, qrels)
    return root


def opened(root: Path, kind: str, name: str = "copied") -> tuple[ChainData, RetrieveChains]:
    torch.manual_seed(0)
    generator = scratch(root / name) if kind == "sequence" else CausalLM(str(root / "llama"))
    module = RetrieveChains(generator, freeze_embeddings=False)
    module.model.eval()
    data = ChainData(str(root / name), spans=WriteSpans(WORDS, drawn=2), dev_split="train")
    data.read(module)
    return data, module


def mined(data: ChainData, module: RetrieveChains, **options: Any) -> dict[str, list[int]]:
    trainer: Any = SimpleNamespace(datamodule=data, global_rank=0, world_size=1)
    return MineNegatives(**options)._mine(trainer, module, 0)


def chains(data: ChainData) -> list[ChainExample]:
    return [data.train_examples.draw(n, 0) for n in range(len(data.train_examples))]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_the_span_of_a_wrong_passage_is_the_likeliest_that_no_right_passage_holds(
    root: Path, kind: str
) -> None:
    data, module = opened(root, kind)
    spans = data.spans
    assert spans is not None
    row_of = np.asarray(data.index.rows.row_of)
    found = mined(data, module, passages=4, beams=200)
    hops = [hop for chain in chains(data) for hop in chain.hops]
    assert set(found) == {hop.seed for hop in hops}
    assert any(hop.evidence for hop in hops)
    copies = {0, len(data.corpus) - 1}
    for hop in hops:
        wrong = [int(spans.owners[span]) for span in found[hop.seed]]
        assert len(set(wrong)) == len(wrong) == 4
        assert not set(wrong) & set(hop.known)
        if copies & set(hop.known):
            assert not copies & set(wrong)  # equal texts count as one passage
        known = set(row_of[spans.of(hop.known)].tolist())
        assert not known & {int(row_of[span]) for span in found[hop.seed]}
    if kind == "causal":
        hop = hops[3]
        for span in found[hop.seed]:
            known = set(row_of[spans.of(hop.known)].tolist())
            others = [n for n in spans.of([spans.owners[span]]).tolist() if int(row_of[n]) not in known]
            holders = np.bincount(row_of)
            scores = [
                log_probability(module.model, data.index, hop.source, n) - np.log(holders[row_of[n]])
                for n in others
            ]
            assert scores[others.index(span)] == pytest.approx(max(scores), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_mining_is_a_function_of_seed_and_weights(root: Path, kind: str) -> None:
    data, module = opened(root, kind)
    first = mined(data, module, passages=2, queries=5)
    assert first == mined(data, module, passages=2, queries=5)
    assert {seed.split("-")[2] for seed in first} != {str(n) for n in range(12)}  # of five queries
    assert len({seed.split("-")[2] for seed in first}) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_margin_between_a_right_span_and_the_mined_one_is_learned(root: Path, kind: str) -> None:
    data, module = opened(root, kind)
    module.margin = 2.0
    teaching = data.collator.teaching  # type: ignore[attr-defined]
    example = chains(data)[2]
    teaching.negatives = mined(data, module, passages=2)
    last = len(example.hops) - 1
    _, paths = teaching(example.hops)
    wrong = [path for path in paths if path.negative]
    assert len(wrong) == 2 * len(example.hops)
    mined_last = teaching.negatives[example.hops[last].seed]
    assert [path.passage for path in wrong if path.hop == last] == mined_last
    start = data.collator.start_token  # type: ignore[attr-defined]
    batch = ChainCollator(0, data.index, teaching, start_token=start)([example])

    def loss() -> torch.Tensor:
        read = (module._read_trees if kind == "causal" else module._read_hops)(batch.read)  # type: ignore[operator]
        scores = taken_scores(module._head, read[batch.decisions.states], batch.decisions)
        return margin_loss(scores, batch.decisions, 2.0)

    before = loss().item()
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert before > 1
    assert loss().item() < 0.2 * before


def test_a_fit_hop_by_hop_mines_and_resumes(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mining begins with the second epoch; a run resumed in its middle has the same negatives."""
    plain = ["--data.spans.drawn=2", "--data.multistep=true", "--data.by_hop=true", "--data.spans.words=3"]
    plain += ["--trainer.limit_val_batches=0"]
    more = [
        *plain, "--model.margin=5.0", "--mine.passages=2", "--last.every_n_train_steps=1",
        "--last.save_top_k=-1", "--last.filename={step}", "--last.save_on_train_epoch_end=false",
    ]  # fmt: skip
    assert main(chain_options(root, tmp_path / "plain", *plain)) == 0
    without = logged(tmp_path / "plain", "train_loss")
    assert main(chain_options(root, tmp_path / "whole", *more)) == 0
    whole = logged(tmp_path / "whole", "train_loss")
    assert [whole[n] > without[n] for n in range(6)] == [False] * 3 + [True] * 3
    again = [*more, f"--ckpt_path={tmp_path / 'whole' / 'checkpoints' / 'step=4.ckpt'}"]
    assert main(chain_options(root, tmp_path / "again", *again)) == 0
    assert logged(tmp_path / "again", "train_loss") == {n: whole[n] for n in (4, 5)}
    other = chain_options(root, tmp_path / "other", *again, "--data.spans.words=2")
    assert "had --data.spans.words 3, now it is 2" in fails(capsys, *other)
