"""Processes that train together, forked from the test's, so that no package is imported again."""

import gc
import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable

from torch import distributed

FREE = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")


def together(count: int, work: Callable[[], object]) -> list[int]:
    """Let `count` processes do the same, with the variables that torchrun sets; returns their statuses.

    When one fails, the others are ended, as by torchrun; and all are when the time of a test is up. A group
    that a training of this process has left would be inherited without its threads, and wait for ever: one
    that is destroyed, too, whose object a collection of garbage in a member would end.
    """
    assert not distributed.is_initialized()
    gc.collect()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    forked = multiprocessing.get_context("fork")
    members = [forked.Process(target=_member, args=(rank, count, port, work)) for rank in range(count)]
    for member in members:
        member.start()
    try:
        while any(member.is_alive() for member in members):
            if any(member.exitcode for member in members):
                time.sleep(0.5)
                break
            time.sleep(0.05)
    finally:
        for member in members:
            if member.is_alive():
                member.kill()
            member.join()
    return [int(member.exitcode or 0) for member in members]


def _member(rank: int, count: int, port: int, work: Callable[[], object]) -> None:
    from accelerate.state import AcceleratorState, GradientState, PartialState

    os.environ |= dict(zip(FREE, ("test", *map(str, (rank, count, rank, count, 0))), strict=True))
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    code = 1
    try:
        code = int(work() or 0)  # type: ignore[call-overload]
        if distributed.is_initialized():
            distributed.barrier()
            distributed.destroy_process_group()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
