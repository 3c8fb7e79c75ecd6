"""Folders of kind hybrid under ``grls retrieve`` and ``grls tune``: what is found, written and refused."""

import re
from pathlib import Path
from typing import Any

import pytest
from composite_specs import write_spec
from run_files import info_of
from small_data import small_retriever

from grls.cli import main
from grls.evaluation.evaluate import evaluate_run
from grls.retrieve.spec import read_spec, relative


def hybrid(folder: Path, generator: Path, *priors: dict[str, Any], **options: Any) -> Path:
    """A folder of a generator with priors."""
    named = {"generator": relative(generator, folder), "priors": list(priors)}
    write_spec(folder, "hybrid", named | options)
    return folder


@pytest.mark.parametrize("normalized", [False, True])
def test_what_is_tuned_is_what_the_folder_retrieves(
    normalized: bool,
    data: Path,
    dense: Path,
    generative: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In both ways of tuning: from few searches, and beside priors with a search for every setting."""
    out, folder = tmp_path / "run", tmp_path / "hybrid"
    priors = [{"retriever": "bm25"}, {"retriever": relative(dense, folder)}]
    hybrid(folder, generative, *priors, normalized=normalized)
    given = [str(folder), f"--data={data}", "--split=train", "--device=cpu"]
    how = ["--search.mode=full", "--search.beams=4"]
    grid = ["--grid.prior_weights=[1, 16]"]
    assert main(["tune", *given, *how, *grid, "--grid.k=2"]) == 0
    head, *tried, gain, last = capsys.readouterr().out.splitlines()
    assert (head, last) == ("priors:", f"{folder}: tuned on 12 queries of train of {data}")
    assert len(tried) in (range(1 + 2 + 2, 1 + 2 + 2 + 1) if normalized else range(3, 12))
    alone = re.match(r"  recall@2 +([0-9.]+)  generator alone$", tried[0])
    reached = re.match(r"priors: recall@2 ([0-9.]+) -> ([0-9.]+) \(.+\), ", gain)
    assert alone is not None
    assert reached is not None
    assert reached[1] == alone[1]
    best = max(float(line.split()[1]) for line in tried)
    assert float(reached[2]) == best >= float(alone[1])
    spec = read_spec(folder)
    assert spec["search"] == {"mode": "full", "beams": 4}
    assert spec.get("normalized") == normalized
    assert [prior["retriever"] for prior in spec["priors"]] == ["bm25", relative(dense, folder)]
    assert {prior["weight"] for prior in spec["priors"]} <= {0, 1, 16}
    assert main(["retrieve", *given, f"--output={out}"]) == 0
    measured = evaluate_run(f"{out}.jsonl", data, "train", ks=[2])
    assert f"{100 * measured['sequence_recall']['recall@2']:.1f}" == reached[2]
    info = info_of(out)
    assert info.options["prior"] == ["bm25", dense.name]
    assert info.options["prior_weight"] == [prior["weight"] for prior in spec["priors"]]
    assert info.options["prior_temperature"] == [prior["temperature"] for prior in spec["priors"]]
    assert (info.options["beams"], info.options["prior_normalized"]) == (4, normalized)


def test_a_generator_that_did_not_learn_beside_priors_is_told(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    generator = small_retriever(data)
    generator.stages = ("retrieve",)
    generator.save_pretrained(tmp_path / "retriever")
    bm25 = {"retriever": "bm25"}
    plain = hybrid(tmp_path / "plain", tmp_path / "retriever", bm25)
    normalized = hybrid(tmp_path / "normalized", tmp_path / "retriever", bm25, normalized=True)
    given = [f"--data={data}", "--device=cpu"]
    assert main(["retrieve", str(plain), *given, f"--output={tmp_path / 'o'}"]) == 0
    assert "beside priors" not in caplog.text
    assert main(["retrieve", str(normalized), *given, f"--output={tmp_path / 'o'}"]) == 0
    assert "does not say that it was trained beside priors" in caplog.text
    caplog.clear()
    assert main(["tune", str(normalized), *given, "--grid.prior_weights=[1]"]) == 0
    assert "does not say that it was trained beside priors" in caplog.text
