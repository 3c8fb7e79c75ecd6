"""A worker that dies once, half-way through a shard."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grls.cluster.plan import Maker, Shard, Work


@dataclass(frozen=True)
class DyingMaker:
    """Opens the work of another maker, whose shard ``number`` is killed when it is done the first time."""

    make: Maker
    number: int
    mark: str

    def __call__(self) -> Work:
        work = self.make()

        def dying(shard: Shard, folder: Path) -> dict[str, Any]:
            result = work(shard, folder)
            if shard.number == self.number and not Path(self.mark).exists():
                Path(self.mark).write_text("", encoding="utf-8")
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return dying
