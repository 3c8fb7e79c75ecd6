"""The benchmarks of `make bench` run: each in a small form, for its table and not for its figures."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_data import tiny_bert, write_small

from benchmarks import (
    beams,
    biencoder,
    cost,
    decode,
    device,
    encoders,
    filters,
    hops,
    hybrid,
    index,
    links,
    perturbed,
    riches,
    scale,
    static,
    streams,
)
from grls.data.dataset import read_qrels, read_queries
from grls.errors import ConfigError

SMALL: dict[str, tuple[Callable[[], None], str]] = {
    "index": (lambda: index.main(300, 8, step_passages=60, beams=3), "times slower than array"),
    "streams": (
        lambda: streams.main((200,), 8, 16, rival_passages=200, marisa_passages=50), "unique prefixes",
    ),
    "scale": (
        lambda: scale.main((300,), 8, width=16, layers=1, queries=2, beams=(1, 3), added=3),
        "queries/s a beam",
    ),
    "decode": (lambda: decode.main(60, 0, 1, 1, 1, input_length=8), "fast / generate"),
    "device": (
        lambda: device.main(
            "cpu", 60, ("small",), (2,), (2,), 1, 1, 8, shapes=("tiny",), corpora=(40, 90), contexts=(12,),
            causal_beams=(10,), causal_batch=2, queries=3,
        ),
        "generate / device",
    ),
    "cost": (lambda: cost.main((60,), queries=2, repeats=1, length=8), "% of decoder"),
    "filters": (lambda: filters.main(200, 8, queries=2, repeats=1), "a filter a query"),
    "links": (lambda: links.main((60,)), "a question, ms"),
    "beams": (lambda: beams.main(False, 50, (2,), (1, 3), (8,)), "to the first"),
    "riches": (lambda: riches.main(2000, 1, 1, prompt=8, length=3, beams=2, repeats=1), "no key twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_prints_its_table(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, title = SMALL[name]
    # each build has a process, which takes seconds to start
    for module in (streams, links):
        monkeypatch.setattr(module, "in_process", lambda work, *arguments: work(*arguments))
    monkeypatch.setattr(scale, "measure_step", scale.one_step)
    run()
    assert re.search(rf"\|.*{re.escape(title)}.*\|", capsys.readouterr().out)


def test_the_bi_encoders_benchmark_prints_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_small(tmp_path / "data")
    encoder = tiny_bert(tmp_path / "bert")
    biencoder.main(str(data), str(encoder), max_tokens=None, batch_size=12, batches=1, repeats=1)
    printed = capsys.readouterr().out
    assert re.search(r"padding is [1-9]\d* % of whole batches", printed)
    assert re.search(r"\| hops a second +\| \d", printed)


def rows(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The cells of the table that was printed, below its head."""
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def test_both_versions_search_the_same_queries(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rival = tmp_path / "rival"
    rival.mkdir()
    for name in ("grls", "benchmarks"):  # another tree, of the same code
        (rival / name).symlink_to(Path(__file__).parents[2] / name)
    hops.main(str(kinds / "generative"), str(kinds / "data"), str(rival), limit=2, k=2)
    here, there = rows(capsys)
    assert [here[0], there[0]] == ["this code", "rival"]
    assert float(here[1]) > 0 < float(there[2])
    assert here[3:] == there[3:]
    assert float(here[3]) > 0
    assert here[-2:] == ["100.0", "100.0"]


def test_the_table_of_hybrids_has_every_system(kinds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hybrid.main(
        *(str(kinds / name) for name in ("data", "generative", "dense")), weights=(4.0,),
        beams=10, k=1, repeats=1, device="cpu",
    )  # fmt: skip
    found = rows(capsys)
    assert [row[0].split(" (")[0] for row in found] == [
        "generator", "bi-encoder", "BM25", "generator + bi-encoder, fused after the fact",
        "generator, bi-encoder ahead", "generator, BM25 ahead", "generator, bi-encoder and BM25 ahead",
    ]  # fmt: skip
    assert float(found[0][-1]) == 1.0
    assert all(0 <= float(cell) <= 100 for row in found for cell in row[1:5])
    assert all(float(cell) > 0 for row in found for cell in row[5:])


def test_encoders_search_so_many_passages_with_all_gold_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(encoders, "in_process", lambda work, *arguments: work(*arguments))
    data, encoder = write_small(tmp_path / "data"), tiny_bert(tmp_path / "bert")
    encoders.main([str(encoder)], [str(data)], passages=5, precision="float32")
    found = rows(capsys)
    assert [row[0] for row in found] == [
        f"{encoder}{row}" for row in ("", ", fused", ", hops", ", hops, fused")
    ]
    assert {row[2] for row in found} == {"100.0"}  # the five best are all there are


def test_the_rival_of_fixed_length_ids_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"decoding_pt.py: no such file; clone .*static-constraint-decoding"
    ):
        static.main(tmp_path, 50, 3, 5, (1,), (2,))


def test_fixed_length_ids_are_found_as_by_looking_at_all() -> None:
    ids = static.random_ids(60, 3, 7)
    logits = torch.randn(3, 1, 1, 7, generator=torch.manual_seed(0)).expand(-1, 2, len(ids), -1)
    found = static.Device(ids, logits)()
    scores = torch.stack([logits[n, 0, 0].log_softmax(-1)[ids[:, n]] for n in range(3)]).sum(0)
    assert found.tolist() == [ids[torch.argsort(-scores).numpy()].tolist()] * 2


def test_training_queries_are_doubled_and_others_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, made = write_small(tmp_path / "data"), tmp_path / "typo"
    perturbed.main(str(data), str(made))
    assert capsys.readouterr().out == "12 perturbed queries among 24 of train\n"
    before, after = ({query.id: query.text for query in read_queries(folder)} for folder in (data, made))
    assert before.items() <= after.items()
    train = read_qrels(made / "qrels" / "train.tsv")
    doubled = {name for name in train if name not in before}
    assert len(doubled) == 12
    for name in doubled:
        assert after[name] != after[name.removesuffix("-typo")]
        assert train[name] == train[name.removesuffix("-typo")]
    assert read_qrels(made / "qrels" / "test.tsv") == read_qrels(data / "qrels" / "test.tsv")
    perturbed.main(str(data), str(made), "case", split="test")
    assert read_qrels(made / "qrels" / "test.tsv") == read_qrels(data / "qrels" / "test.tsv")
    changed = {query.id for query in read_queries(made) if query.text != before[query.id]}
    assert changed == read_qrels(data / "qrels" / "test.tsv").keys()
    with pytest.raises(SystemExit, match=r'language changes no query of test .* needs "translations"'):
        perturbed.main(str(data), str(made), "language", split="test")
