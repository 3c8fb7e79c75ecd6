"""What an installed wheel can do outside a checkout."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("grls", "data_prep", "configs")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


def _pip(*arguments: str) -> None:
    quiet = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(quiet, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel of a copy of the sources is installed into."""
    missing = [name for name in ("pip", "setuptools", "wheel") if find_spec(name) is None]
    if missing:
        pytest.skip(f"building a wheel without a network needs {', '.join(missing)}")
    place = tmp_path_factory.mktemp("wheel")
    for part in PARTS:
        shutil.copytree(ROOT / part, place / "src" / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, place / "src" / file)
    _pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={place}", str(place / "src"))
    (wheel,) = place.glob("grls-*.whl")
    _pip("install", "--no-deps", "--no-index", f"--target={place / 'target'}", str(wheel))
    return place / "target"


def grls(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the installation in another folder."""
    program = "import sys, grls.cli; print(grls.cli.__file__, file=sys.stderr); sys.exit(grls.cli.main())"
    return subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        capture_output=True, text=True, timeout=300, cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--help", "usage: grls VERB"),
        ("prepare --help", "ruletaker"),
        ("prepare ruletaker --config prepare/quickstart.yaml --print_config", "out: data/quickstart"),
        ("train memorise --config memorise.yaml --print_config", "t5-large"),
        ("train chains --config configs/chains.yaml --config default/chains --print_config", "spans:"),
        ("train biencoder --config biencoder --config configs/local/biencoder.yaml --print_config", "MiniLM"),
        ("index m --config configs/sparse.yaml --print_config", "kind: sparse"),
    ],
)
def test_a_wheel_has_the_recipes(line: str, said: str, installed: Path, tmp_path: Path) -> None:
    done = grls(installed, tmp_path, *line.split())
    assert done.returncode == 0, done.stderr
    assert str(installed) in done.stderr
    assert said in done.stdout


def test_a_wheel_names_near_recipes(installed: Path, tmp_path: Path) -> None:
    done = grls(installed, tmp_path, "train", "memorise", "--config", "memorize.yaml")
    assert done.returncode == 2
    assert "Near names: memorise" in done.stderr


def test_a_wheel_holds_every_recipe_and_no_other_folder(installed: Path) -> None:
    shipped = {file.relative_to(ROOT / "configs") for file in (ROOT / "configs").rglob("*") if file.is_file()}
    assert {
        file.relative_to(installed / "grls" / "configs")
        for file in (installed / "grls" / "configs").rglob("*")
        if file.is_file()
    } == shipped
    assert {folder.name for folder in installed.iterdir() if folder.is_dir()} - {"bin"} == {
        "grls", "data_prep", *(folder.name for folder in installed.glob("grls-*.dist-info")),
    }  # fmt: skip
