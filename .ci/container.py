"""Does the steps of the Dockerfile in a temporary folder, starts its command, and asks its health check.

    python .ci/container.py

It needs no docker daemon and no rights: the base image is the Python that runs this, and the step that makes
a user is left out. It makes a virtual environment of about 2 GB. Exit code 0: the server was ready.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from dockerfile import Step, command_of, steps  # noqa: E402

PORT = "8765"
SECONDS = 300
RETRIEVER = """
import sys
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.retrieve.bm25 import BM25Retriever
BM25Retriever(Corpus.from_passages([Passage("a", "an otter eats fish")])).save_pretrained(sys.argv[1])
"""


class Stages:
    """The folders of the stages of a Dockerfile.

    Args:
        source: The build context.
        place: A folder for all stages: the absolute paths of each lead into a folder of it.
        variables: Build arguments.
    """

    def __init__(self, source: Path, place: Path, variables: Mapping[str, str]):
        self.source, self.place = source, place
        self.variables = dict(variables)
        self.folders: dict[str, str] = {}

    def do(self, found: Sequence[Step], skipped: Sequence[str]) -> None:
        """Do the steps, but RUN steps that begin with a word of ``skipped``."""
        for step in found:
            if step.name == "ARG" and "=" in step.text:
                name, _, value = step.text.partition("=")
                self.variables.setdefault(name, value)
            elif step.name == "WORKDIR":
                self.folders[step.stage] = step.text
                self.inside(step.text).mkdir(parents=True, exist_ok=True)
            elif step.name == "COPY":
                self._copy(step)
            elif step.name == "RUN" and step.text.split()[0] not in skipped:
                self._run(step)

    def inside(self, path: str) -> Path:
        """Where an absolute path of a stage is. Stages share the folder: no two of ours use one path."""
        return self.place / path.lstrip("/")

    def _copy(self, step: Step) -> None:
        *sources, target = [word for word in shlex.split(step.text) if not word.startswith("--")]
        if "--from=" in step.text:  # the stages share the folder
            assert sources == [target]
            return
        goal = self.inside(str(Path(self.folders.get(step.stage, "/")) / target))
        for source in sources:
            if (self.source / source).is_dir():
                shutil.copytree(self.source / source, goal, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                into = goal / source if target.endswith("/") else goal
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.source / source, into)

    def _run(self, step: Step) -> None:
        text = re.sub(r"(?<![\w.])/(source|wheels|build|opt)\b", rf"{self.place}/\1", step.text)
        folder = self.inside(self.folders.get(step.stage, "/"))
        folder.mkdir(parents=True, exist_ok=True)
        print(f"RUN {text}", flush=True)
        subprocess.run(["sh", "-euc", text], cwd=folder, check=True, env={**os.environ, **self.variables})


def main() -> int:
    """Build, start, ask."""
    found = list(steps((ROOT / "Dockerfile").read_text()))
    with TemporaryDirectory(prefix="grls-container-") as folder:
        place = Path(folder)
        stages = Stages(ROOT, place, {"TORCH_INDEX": os.environ.get("TORCH_INDEX", "")})
        stages.do(found, skipped=["useradd"])
        path = f"{place / 'opt/grls/bin'}:{os.environ['PATH']}"
        environment = {"PATH": path, "HF_HUB_OFFLINE": "1", "HOME": "/nonexistent"}
        retriever = place / "retrievers" / "default"
        subprocess.run(["python", "-c", RETRIEVER, str(retriever)], check=True, env=environment)
        command = [*command_of(found, "ENTRYPOINT"), *command_of(found, "CMD")]
        command = [word.replace("/retrievers", str(retriever.parent)) for word in with_port(command)]
        server = subprocess.Popen(command, env=environment)
        try:
            return _ready(with_port(command_of(found, "HEALTHCHECK")), environment)
        finally:
            server.terminate()
            print("the server ended with", server.wait(60))


def with_port(command: list[str]) -> list[str]:
    """A command of the container at the port of this check."""
    return [word.replace("8000", PORT) for word in command]


def _ready(check: list[str], environment: dict[str, str]) -> int:
    begun = time.monotonic()
    while time.monotonic() - begun < SECONDS:
        if subprocess.run(check, env=environment, stderr=subprocess.DEVNULL).returncode == 0:
            print("the health check passed")
            return 0
        time.sleep(1)
    print("the health check did not pass", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
