"""Parts of an index on the machines of a Ray cluster: each is an actor that opens its part and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from grls.cluster.options import USUAL_WORKERS, Workers
from grls.cluster.ray_data import Cluster
from grls.errors import ConfigError, IndexFormatError
from grls.index.ranges.parts import Arrays, Facts, IndexParts
from grls.index.ranges.remote import ServedPart, packed, unpacked
from grls.index.rows import Array


class PartsOnRay(IndexParts):
    """Parts in actors of a Ray cluster, spread over its machines, one a part.

    Args:
        places: For each part its folder and the file of its numbers, both checked; all machines see them.
        address: Address of the cluster; see :class:`~grls.cluster.options.Workers`.

    Raises:
        ConfigError: There is no cluster, or a machine of it cannot do the work.
        IndexFormatError: A part has changed meanwhile.
    """

    def __init__(self, places: Sequence[tuple[Path, Path]], address: str):
        self._stack = ExitStack()
        cluster = self._stack.enter_context(Cluster.opened(Workers(address, USUAL_WORKERS)))
        try:
            cluster.check_sees(places[0][1])
            self._actors = [self._started(*place) for place in places]
            asked = [actor.facts.remote() for actor in self._actors]
            heads = [self._received(part, reply)[0] for part, reply in enumerate(asked)]
        except BaseException:
            self._stack.close()
            raise
        self.facts = [Facts(**head["facts"]) for head in heads]

    def ask(self, what: str, asked: Mapping[int, Arrays]) -> dict[int, list[Array]]:  # noqa: D102
        message = {part: packed({"what": what}, arrays) for part, arrays in asked.items()}
        replies = {part: self._actors[part].answer.remote(sent) for part, sent in message.items()}
        return {part: self._received(part, reply)[1] for part, reply in replies.items()}

    def close(self) -> None:
        """End the actors, and the cluster if it was started for them."""
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._stack.close()

    def _started(self, folder: Path, numbers: Path) -> Any:
        import ray

        # No processor is reserved, so that more parts than processors can start.
        part = ray.remote(ServedPart).options(num_cpus=0, scheduling_strategy="SPREAD")
        return part.remote(str(folder.absolute()), str(numbers.absolute()))

    def _received(self, part: int, reply: Any) -> tuple[dict[str, Any], list[Array]]:
        import ray
        from ray.exceptions import RayError

        try:
            head, arrays = unpacked(ray.get(reply))
        except RayError:
            raise ConfigError(
                f"the actor of part {part} of the index has ended (its machine is gone, or for lack of "
                "memory): open the retriever again."
            ) from None
        if "error" in head:
            raise IndexFormatError(head["error"])
        return head, arrays
