"""Checks before a release that a tag and the files beside the code speak of the same version.

    python .ci/release.py v0.2.0 --repository https://HOST/OWNER/NAME

The tag is the version of the package and of the citation, and stands with its date at the top of the
changelog; the links of the package, and the name for the registry of MCP servers, lead to the
repository, if it is given. Exit code 1: what is not so.
"""

import argparse
import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINKS = {"Source": "", "Issues": "/issues", "Changelog": "/blob/main/CHANGELOG.md"}
"""Name of a link of ``[project.urls]`` -> where it leads, below the repository."""


def main() -> int:
    """Check, and print every fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tag")
    parser.add_argument("--repository", help="its address")
    asked = parser.parse_args()
    faults = differences(ROOT, asked.tag, asked.repository)
    print("\n".join(faults) or f"{asked.tag}: version, citation, changelog and server.json are the same.")
    return 1 if faults else 0


def differences(root: Path, tag: str, repository: str | None = None) -> list[str]:
    """What does not speak of the release, a line each."""

    def line(name: str, pattern: str) -> str:
        match = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        return match[1] if match else ""

    version, faults = tag.removeprefix("v"), []
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        faults.append(f"the tag {tag!r} is not of the form v1.2.3")
    known = {"grls/__init__.py": r'^__version__ = "(.+)"$', "CITATION.cff": r"^version: (.+)$"}
    for name, pattern in known.items():
        if (text := line(name, pattern)) != version:
            faults.append(f"{name} has the version {text!r}, and the tag is {tag}")
    text = line("CHANGELOG.md", "^## (.+)$")
    if not re.fullmatch(re.escape(version) + r" \(\d{4}-\d\d-\d\d\)", text):
        faults.append(f"CHANGELOG.md begins with '## {text}', expected '## {version} (YEAR-MONTH-DAY)'")
    server = json.loads((root / "server.json").read_text(encoding="utf-8"))
    if {server["version"], *(package["version"] for package in server["packages"])} != {version}:
        faults.append(f"server.json has another version than the tag {tag}")
    if repository is not None:
        expected = f"io.github.{'/'.join(repository.split('/')[3:5])}"
        if server["name"] != expected:
            faults.append(f"server.json has the name {server['name']!r}, expected {expected!r}")
        if f"mcp-name: {server['name']} " not in (root / "README.md").read_text(encoding="utf-8"):
            faults.append(f"README.md lacks: <!-- mcp-name: {server['name']} -->")
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name, end in LINKS.items():
            if project["urls"].get(name) != repository + end:
                faults.append(f'[project.urls] of pyproject.toml lacks: {name} = "{repository}{end}"')
    return faults


if __name__ == "__main__":
    sys.exit(main())
