"""A cluster that is not there, packages that are missing: clear errors before the work begins."""

import socket
import sys

import pytest

from grls.cluster import workers
from grls.cluster.options import WorkerOptions, Workers
from grls.errors import ConfigError


def test_an_address_without_a_cluster_is_refused() -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with socket.socket() as free:  # bound, but nobody listens
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with (
            pytest.raises(ConfigError, match=rf"there is no Ray cluster at {address} \(.*ray start --head"),
            workers.Cluster.opened(Workers(address, WorkerOptions())),
        ):
            pass


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ConfigError, match=r'ray needs ray \(not installed\): `pip install "grls\[ray\]"'),
        workers.Cluster.opened(Workers("local", WorkerOptions())),
    ):
        pass
