"""What an installed wheel can do outside a checkout."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from installed_packages import Environment, metadata_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import grls
from grls.io.ending import EXTRAS

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
import grls
from grls.cli import main

for line in json.loads(sys.argv[1]):
    print("$ grls", line, flush=True)
    if code := main(line.split()):
        sys.exit(code)
for folder in ("runs/bm25", "runs/retriever"):
    retriever = grls.load(folder, device="cpu")
    alone = retriever.search("is anna kind ?", k=3)
    several = retriever.search(["is anna kind ?", "is bob big ?"], k=3)
    assert alone and len(several) == 2 and all(hit.text for hit in alone), folder
print("searched with", grls.__file__)
"""

QUICK = (
    "--trainer.max_epochs=1 --trainer.check_val_every_n_epoch=1 --trainer.limit_train_batches=4 "
    "--trainer.accelerator=cpu --data.dev_size=8"
)

TYPED = """
import grls

retriever = grls.load("runs/mine")
hits: list[grls.Hit] = retriever.search("otters", k=5, where="year>=2000")
rankings: list[list[grls.Hit]] = retriever.search(["otters", "herons"])
best: str | None = hits[0].text
passages: grls.Corpus = retriever.corpus
"""


@pytest.fixture(scope="module")
def metadata(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return metadata_of(wheel, tmp_path_factory.mktemp("metadata"))


def test_the_readme_from_data_to_a_report(everything: Environment, tmp_path: Path) -> None:
    """BM25 and a small generator, by the recipes of the wheel, with no file but what is made here."""
    shape = "d_model=32 d_ff=64 d_kv=8 num_layers=1 num_decoder_layers=1 num_heads=4"
    tiny = " ".join(f"--model.generator.{option}" for option in shape.split())
    lines = (
        "prepare ruletaker --config prepare/quickstart.yaml --out data --train 40 --dev 8 --test 10 "
        "--theory.subjects 6 --theory.predicates 6 --theory.rules 10 --theory.max_depth 3",
        "check data",
        f"train retrieve --config configs/retrieve.yaml --config scratch/memorise --config quickstart {tiny} "
        f"{QUICK} --data.data data --model.generator.data data --output runs/retrieve",
        "index runs/retrieve/model --corpus data --output runs/retriever",
        "index bm25 --corpus data --output runs/bm25",
        "retrieve runs/retriever --data data --hops.steps dynamic --hops.max 3 --output runs/test",
        "retrieve runs/bm25 --data data --output runs/bm25-test",
        "evaluate runs/test.jsonl --data data --output runs/metrics.json",
        "experiment runs/test.jsonl runs/bm25-test.jsonl --output runs/report",
    )
    done = everything.run("-c", PROGRAM, json.dumps(lines), cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert f"searched with {everything.site}" in done.stdout
    assert "success" in json.loads((tmp_path / "runs" / "metrics.json").read_text())["graph"]
    assert "<svg" in (tmp_path / "runs" / "report.html").read_text()


def test_the_program_grls(everything: Environment, tmp_path: Path) -> None:
    program = [str(everything.folder / "bin" / "grls"), "--version"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"grls {grls.__version__}\n", done.stderr


def test_a_wheel_holds_every_recipe_and_data_file_and_no_other_folder(
    wheel: Path, everything: Environment
) -> None:
    shipped = {file.relative_to(ROOT / "configs") for file in (ROOT / "configs").rglob("*") if file.is_file()}
    recipes = everything.site / "grls" / "configs"
    assert {file.relative_to(recipes) for file in recipes.rglob("*") if file.is_file()} == shipped
    sources = {file.relative_to(ROOT) for name in ("grls", "data_prep") for file in (ROOT / name).rglob("*")}
    data = {file for file in sources if (ROOT / file).is_file() and file.suffix not in (".py", ".pyc")}
    assert Path("grls/py.typed") in data
    assert [file for file in sorted(data) if not (everything.site / file).is_file()] == []
    record = next(everything.site.glob("grls-*.dist-info")) / "top_level.txt"
    assert record.read_text().split() == ["data_prep", "grls"]


def test_the_metadata(metadata: Distribution) -> None:
    found = metadata.metadata
    assert found["Version"] == grls.__version__
    assert found["License-Expression"] == "Apache-2.0"
    assert {"Programming Language :: Python :: 3.14", "Typing :: Typed"} <= {*found.get_all("Classifier", [])}
    assert found["Requires-Python"] == ">=3.11"


def test_the_extras_are_those_that_errors_name(metadata: Distribution) -> None:
    """Each package of ``grls.io.ending`` is in its extra, and in nothing that a search needs."""
    needs = [Requirement(text.lower()) for text in metadata.requires or ()]
    core = [canonicalize_name(need.name) for need in needs if need.marker is None]
    owners = packages_distributions()
    assert {*EXTRAS} < {*metadata.metadata.get_all("Provides-Extra", [])}
    for extra, packages in EXTRAS.items():
        brought = _brought(needs, extra)
        for package in packages:
            names = {canonicalize_name(name) for name in owners.get(package, [package])}
            assert names & {*brought}, (extra, package)
            assert not names & {*core}


def _brought(needs: list[Requirement], extra: str) -> list[str]:
    """The names that an extra brings, those of extras within it included."""
    mine = [need for need in needs if need.marker is not None and need.marker.evaluate({"extra": extra})]
    within = [
        name for need in mine if need.name == "grls" for one in need.extras for name in _brought(needs, one)
    ]
    return [canonicalize_name(need.name) for need in mine] + within


def test_every_dependency_has_a_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    needs = [Requirement(text) for texts in lists for text in texts]
    free = [n.name for n in needs if n.name != "grls" and not re.search(">=|==", str(n.specifier))]
    assert free == []


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_a_user_s_program_is_type_checked(wheel: Path, tmp_path: Path) -> None:
    """Without the packages that grls requires: only the names of grls need types."""
    environment = Environment(tmp_path / "env")
    environment.install_alone(wheel)
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(TYPED)
    wrong.write_text(TYPED + 'number: int = retriever.search("otters")\n')
    checked = [
        subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(environment.python),
             f"--cache-dir={tmp_path / 'cache'}", str(file)],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, env={"PATH": ""},
        )
        for file in (right, wrong)
    ]  # fmt: skip
    assert checked[0].returncode == 0, checked[0].stdout + checked[0].stderr
    assert checked[1].returncode == 1
    assert checked[1].stdout.count("error:") == 1, checked[1].stdout
    assert "list[Hit]" in checked[1].stdout
