"""The locked versions, and the hashes of their files, which `make lock` writes together."""

import re
from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
LOCKED = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;\\]+)", re.MULTILINE)


def versions(name: str) -> dict[str, str]:
    found = LOCKED.findall((ROOT / name).read_text())
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


def test_both_files_lock_the_same_versions() -> None:
    locked, hashed = versions("requirements.lock"), versions("requirements.hashes")
    both = {*locked} & {*hashed}
    assert {name for name in both if locked[name] != hashed[name]} == set(), "run `make lock`"
    assert len(both) > 100


def test_every_version_has_hashes() -> None:
    text = (ROOT / "requirements.hashes").read_text()
    entries = re.split(r"^(?=[\w.-]+(?:\[[\w,-]+\])?==)", text, flags=re.MULTILINE)[1:]
    assert [entry.split("\n")[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_every_version_takes_the_oldest_python() -> None:
    locked, checked, newer = versions("requirements.lock"), 0, []
    for package in distributions():
        if locked.get(re.sub(r"[-_.]+", "-", package.name).lower()) == package.version:
            checked += 1
            if not SpecifierSet(package.metadata["Requires-Python"] or "").contains("3.11.0"):
                newer.append((package.name, package.metadata["Requires-Python"]))
    assert newer == [], "run `make lock`"
    assert checked > 100
