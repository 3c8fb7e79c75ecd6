"""The files beside the code say what is so: version, commands of workflows, files that are named."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pythons import supported
from release import differences
from verbs import fault

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
        for script in re.findall(r"(?<!\S)\.ci/[\w.]+", command):
            assert (ROOT / script).is_file()
    assert len(WORKFLOWS) == 3


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    lines = re.findall(r"uses: *(.+)", workflow.read_text(encoding="utf-8"))
    assert len(lines) == sum("uses" in step for step in steps(workflow)) > 1
    assert [line for line in lines if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)] == []


def test_each_python_is_tried() -> None:
    ci, release = (
        yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text(encoding="utf-8"))["jobs"]
        for name in ("ci", "release")
    )
    for job in (ci["test"], ci["versions"], release["install"]):
        assert job["strategy"]["matrix"]["python"] == supported()
    for entry in ci["systems"]["strategy"]["matrix"]["include"]:
        assert [path for path in entry["tests"].split() if not (ROOT / path).exists()] == []
    page = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    assert f"from {supported()[0]} to {supported()[-1]}." in page


def test_forms_have_what_they_need() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
    assert len(forms) == 2
    for form in forms:
        content = yaml.safe_load(form.read_text(encoding="utf-8"))
        fields = [field for field in content["body"] if field["type"] != "markdown"]
        assert {"name", "description", "body"} <= content.keys()
        assert len({field["id"] for field in fields}) == len(fields) > 1
        assert all(field["attributes"]["label"] for field in fields)


def test_a_release_is_one_version_everywhere(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")

    (tmp_path / "grls").mkdir()
    write("grls/__init__.py", '"""Doc."""\n__version__ = "1.2.0"\n')
    write("CITATION.cff", "title: x\nversion: 1.2.0\n")
    write("CHANGELOG.md", "# Changes\n\n## 1.2.0 (2027-01-31)\n\nNew.\n\n## 1.1.0 (2026-12-01)\n")
    write("pyproject.toml", "[project.urls]\n")
    server = {"name": "io.github.OWNER/name", "version": "1.2.0", "packages": [{"version": "1.2.0"}]}
    write("server.json", json.dumps(server))
    write("README.md", "<!-- mcp-name: io.github.owner/name -->")
    assert differences(tmp_path, "v1.2.0") == []
    assert len(differences(tmp_path, "v1.1.0")) == 4
    write("server.json", json.dumps(server | {"packages": [{"version": "1.1.0"}]}))
    assert differences(tmp_path, "v1.2.0") == ["server.json has another version than the tag v1.2.0"]
    write("server.json", json.dumps(server))
    assert len(differences(tmp_path, "v1.2.0", "https://host/owner/name")) == 2 + 3  # names, links
    write("server.json", json.dumps(server | {"name": "io.github.owner/name"}))
    assert "form v1.2.3" in differences(tmp_path, "1.2.0")[0]
    write("CHANGELOG.md", "# Changes\n\n## 1.2.0 (not released yet)\n")
    assert "expected '## 1.2.0 (YEAR-MONTH-DAY)'" in differences(tmp_path, "v1.2.0")[0]
    lacking = differences(tmp_path, "v1.2.0", "https://host/owner/name")[1:]
    write(
        "pyproject.toml", "[project.urls]\n" + "\n".join(fault.partition("lacks: ")[2] for fault in lacking)
    )
    assert len(differences(tmp_path, "v1.2.0", "https://host/owner/name")) == 1


def test_agents_can_install_the_server_that_is_registered() -> None:
    server = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
    assert (server["version"], len(server["description"]) <= 100) == (grls.__version__, True)
    assert f"<!-- mcp-name: {server['name']} -->" in (ROOT / "README.md").read_text(encoding="utf-8")
    (package,) = server["packages"]
    words = [f"{one.get('name', '')} {one.get('value', 'x')}" for one in package["packageArguments"]]
    assert fault(f"grls {' '.join(words)}") == ""
    assert {one["value"] for one in package["runtimeArguments"]} == {f"grls[mcp]=={grls.__version__}", "grls"}


def test_all_tests_run_before_a_release() -> None:
    before, _, _ = (ROOT / "RELEASING.md").read_text(encoding="utf-8").partition("git tag")
    assert "`make test-all`" in before  # `.ci/run` leaves the slow ones out


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "RELEASING.md"])
def test_the_make_targets_that_are_named_exist(name: str) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`?make ([\w-]+)`?", (ROOT / name).read_text(encoding="utf-8")))
    assert named
    assert named <= targets
