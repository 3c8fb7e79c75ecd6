"""Installs a built wheel, then the sdist, where nothing else is installed, and runs what a newcomer runs.

    python .ci/install.py dist
    python .ci/install.py dist --python all --constraint requirements.lock

``dist`` holds what ``python -m build`` wrote. In a temporary folder (about 2 GB for each Python) pip installs
grls, which then searches, and its extra ``train``. The Python of the README runs as it stands, and
``grls fit`` on a list of texts, in Python and as a command. Neither a model nor a hub is needed. Exit code
0: all of it ran.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pythons import HELP, ROOT, chosen, environment

TEXTS = [
    f"{animal} {does}."
    for animal, does in {
        "Otters": "eat fish and crabs in the river",
        "Herons": "stand on one leg in shallow water",
        "Badgers": "dig long tunnels under the wood",
        "Swifts": "sleep on the wing above the clouds",
        "Moles": "push heaps of earth onto the lawn",
        "Bats": "hang by their feet in dark caves",
        "Hares": "lie in a hollow of the open field",
        "Toads": "walk to the pond of their birth",
        "Wrens": "build round nests of moss and leaves",
        "Foxes": "bury what they cannot eat at once",
    }.items()
]
BASE = f"""
import grls

assert grls.BM25({TEXTS!r}).search("who builds nests of moss?", k=1)[0].text.startswith("Wrens")
"""
FIT = f"""
import grls

result = grls.fit({TEXTS!r}, output="runs/list", biencoder=None, generator=None)
print(result.retriever.search("who builds nests of moss?", k=1)[0].text)
"""


def main() -> int:
    """Install and run, on each Python that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dist", type=Path, help="the folder with one wheel and one sdist")
    parser.add_argument("--python", default=sys.executable, help=HELP)
    parser.add_argument("--constraint", help="a file of versions, for pip")
    asked = parser.parse_args()
    (wheel,), (sdist,) = asked.dist.glob("*.whl"), asked.dist.glob("*.tar.gz")
    for interpreter in chosen(asked.python):
        with TemporaryDirectory(prefix="grls-install-", ignore_cleanup_errors=True) as place:
            python = environment(interpreter, Path(place, "env"))
            limits = ["--constraint", asked.constraint] if asked.constraint else []
            pip = (python, "-m", "pip", "install", "--quiet")
            subprocess.run([*map(str, (*pip, *limits, wheel))], check=True)
            subprocess.run([str(python), "-c", BASE], check=True)
            subprocess.run([*map(str, (*pip, *limits, f"{wheel}[train]"))], check=True)
            for package in (wheel, sdist):
                alone = (*pip, "--force-reinstall", "--no-deps", package)
                subprocess.run([*map(str, alone)], check=True)
                runs(python, Path(place, package.suffix[1:]))
                print(f"{package.name} by {interpreter}: installed, searched and fitted", flush=True)
    return 0


def runs(python: Path, folder: Path) -> None:
    """Run the README's Python and ``grls fit`` in a new folder, by an interpreter that has grls installed."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (readme,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    program = shutil.which("grls", path=str(python.parent))
    assert program is not None, f"there is no program grls in {python.parent}"
    lines = [json.dumps({"_id": str(number), "text": text}) for number, text in enumerate(TEXTS)]
    (folder / "texts").mkdir(parents=True)
    (folder / "texts" / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    fit = ("fit", "texts", "--output", "runs/folder", "--biencoder", "none", "--generator", "none")
    commands: list[tuple[str, list[object]]] = [
        ("Otters eat fish.", [python, "-c", readme]),
        (TEXTS[8], [python, "-c", FIT]),
        ("", [program, *fit]),
        (TEXTS[2], [program, "search", "runs/folder", "who digs tunnels?", "--k", "1"]),
    ]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for expected, command in commands:
        words = [*map(str, command)]
        done = subprocess.run(
            words, cwd=folder, env=clean | {"HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        if done.returncode or expected not in done.stdout:
            how = f"ended with {done.returncode}, without {expected!r}"
            raise SystemExit(f"{done.stdout}\nthis {how}: {words}")


if __name__ == "__main__":
    sys.exit(main())
