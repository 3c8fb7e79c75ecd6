"""A wheel of grls, and environments that hold it.

An environment is made of links to the packages of the running one: a second, and no network. It has the
packages that the wheel's own requirements bring, and no others.
"""

import csv
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PARTS = ("grls", "data_prep", "configs")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
FRESH = "GRLS_FRESH_INSTALL"
"""Variable of the environment: set, packages are installed by pip from the index, and not linked."""


def build_sdist(place: Path) -> Path:
    """The sdist of a copy of the sources."""
    for part in PARTS:
        shutil.copytree(ROOT / part, place / "src" / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, place / "src" / file)
    build = f"from setuptools.build_meta import build_sdist; build_sdist({str(place)!r})"
    _done([sys.executable, "-c", build], cwd=place / "src")
    (sdist,) = place.glob("grls-*.tar.gz")
    return sdist


def build_wheel(sdist: Path) -> Path:
    """The wheel that pip makes of an sdist, beside it."""
    _pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={sdist.parent}", str(sdist))
    (wheel,) = sdist.parent.glob("grls-*.whl")
    return wheel


def metadata_of(wheel: Path, place: Path) -> Distribution:
    """The metadata of a wheel, unpacked into a folder."""
    with ZipFile(wheel) as content:
        content.extractall(place, [name for name in content.namelist() if ".dist-info/" in name])
    (folder,) = place.glob("grls-*.dist-info")
    return Distribution.at(folder)


class Environment:
    """A virtual environment without pip.

    Args:
        folder: A new folder for it.
    """

    def __init__(self, folder: Path):
        _done([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        self.folder = folder
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")

    def install(self, wheel: Path, *extras: str) -> None:
        """Install a wheel with all that it requires."""
        if os.environ.get(FRESH):
            lock = f"--constraint={ROOT / 'requirements.lock'}"
            # First torch alone: its local CPU build is used where there is one.
            for what in ("torch", f"{wheel}[{','.join(extras)}]" if extras else str(wheel)):
                _pip(f"--python={self.python}", "install", lock, what)
        else:
            self.link(brought_by(metadata_of(wheel, self.folder / "metadata"), extras))
            self.install_alone(wheel)

    def install_alone(self, wheel: Path) -> None:
        """Install a wheel without its requirements."""
        _pip(f"--python={self.python}", "install", "--no-deps", "--no-index", str(wheel))

    def link(self, names: Iterable[str]) -> None:
        """Link distributions of the running environment."""
        owners = Counter(top for one in distributions() for top in {*map(_top, _files(one))})
        for name in names:
            one = distribution(name)
            # A folder that several distributions share is linked file by file.
            tops = {file: _top(file) for file in _files(one)}
            for part in {top if owners[top] == 1 else file for file, top in tops.items()}:
                place, source = self.site / part, Path(str(one.locate_file(part)))
                if source.exists() and not place.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.symlink_to(source)

    def run(self, *arguments: str, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run its Python in a folder."""
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [str(self.python), "-P", *arguments],
            cwd=cwd, timeout=timeout, capture_output=True, text=True, env=plain | {"HF_HUB_OFFLINE": "1"},
        )  # fmt: skip


def brought_by(grls: Distribution, extras: Iterable[str]) -> set[str]:
    """The distributions that grls with some extras brings, directly or not.

    Raises:
        PackageNotFoundError: The running environment lacks one.
    """
    known: dict[str, set[str]] = {}
    waiting = [Requirement(f"grls[{','.join(extras)}]")]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in known and one.extras <= known[name]:
            continue
        known[name] = known.get(name, set()) | one.extras
        waiting += _needs(grls if name == "grls" else distribution(name), known[name])
    return set(known) - {"grls"}


def _files(one: Distribution) -> list[str]:
    """The files of a distribution below site-packages; ``Distribution.files`` looks for each on the disk."""
    record = csv.reader((one.read_text("RECORD") or "").splitlines())
    return [row[0] for row in record if row and not row[0].startswith("..")]


def _top(file: str) -> str:
    return file.split("/")[0]


def _needs(one: Distribution, extras: set[str]) -> list[Requirement]:
    every = [Requirement(text) for text in one.requires or ()]
    return [
        need
        for need in every
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in {"", *extras})
    ]


def _pip(*arguments: str) -> None:
    _done([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments])


def _done(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
