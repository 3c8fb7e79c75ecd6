"""The files beside the code say what is so: version, commands of workflows, files that are named."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import grls

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def test_no_file_names_the_host_of_a_registry() -> None:
    hosts = ("pypi.org", "pythonhosted.org", "download.pytorch.org", "npmjs.org", "deb.debian.org")
    folders = ("grls", "data_prep", "benchmarks", "configs", "docs", "tests", ".ci", ".github")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file()]
    files += [file for file in ROOT.iterdir() if file.is_file() and file.name != ".git"]
    texts = {file: file.read_bytes() for file in files if file != Path(__file__) and file.suffix != ".pyc"}
    assert len(texts) > 500
    named = [(file.name, host) for file, text in texts.items() for host in hosts if host.encode() in text]
    assert named == []


def test_the_citation_has_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (grls.__version__, "Apache-2.0")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_the_install_page_names_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    assert [extra for extra in extras["optional-dependencies"] if f"`{extra}`" not in page] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_runs_what_is_there(workflow: Path) -> None:
    """Its make targets exist, and its token may only read unless a job says more."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    content = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"}
    runs = [step["run"] for step in steps(workflow) if "run" in step]
    for command in runs:
        assert set(re.findall(r"\bmake ([\w-]+)", command)) <= targets
        for script in re.findall(r"(?<!\S)\.ci/\w+", command):
            assert (ROOT / script).is_file()
    assert len(WORKFLOWS) == 3


def test_all_tests_run_before_a_release() -> None:
    before, _, _ = (ROOT / "RELEASING.md").read_text(encoding="utf-8").partition("git tag")
    assert "`make test-all`" in before  # `.ci/run` leaves the slow ones out


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "RELEASING.md"])
def test_the_make_targets_that_are_named_exist(name: str) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`?make ([\w-]+)`?", (ROOT / name).read_text(encoding="utf-8")))
    assert named
    assert named <= targets
