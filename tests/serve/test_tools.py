"""The tools of an agent, called by the client of the package mcp: in the process, over stdio, over HTTP."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_helpers import HOSTILE, Slow, behind_socket, hostile_folder, serving_of

pytest.importorskip("mcp", reason='needs the extra mcp: pip install "grls[mcp]"')

from mcp import Client, StdioServerParameters

from grls.api.opening import load
from grls.cli import main
from grls.serve.options import AccessOptions, RequestLimits
from grls.serve.serving import Serving
from grls.serve.tools.server import tool_server

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def serving(kinds: Path, hostile: Path) -> Iterator[Serving]:
    one = serving_of({"generative": kinds / "generative", "hops": kinds / "hops", "hostile": hostile})
    yield one
    one.close()


def called(where: Any, name: str, /, **arguments: Any) -> Any:
    async def call() -> Any:
        async with Client(where) as client:
            return await client.call_tool(name, arguments)

    return asyncio.run(call())


def found(result: Any) -> Any:
    """The content of a result, which is sent once, as text, without what is not there."""
    assert not result.is_error, result.content[0].text
    assert result.structured_content is None
    (content,) = result.content
    body = json.loads(content.text)
    assert content.text == json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    assert "null" not in content.text
    return body


def test_what_is_listed(serving: Serving) -> None:
    async def listed() -> Any:
        async with Client(tool_server(serving)) as client:
            return client.instructions, (await client.list_tools()).tools

    instructions, tools = asyncio.run(listed())
    assert "Retrievers: generative, hops, hostile." in instructions
    assert [tool.name for tool in tools] == ["search", "hops", "passages"]
    for tool in tools:
        assert tool.description
        assert tool.annotations.read_only_hint
        assert tool.output_schema is None
        assert tool.input_schema["additionalProperties"] is False
        assert all(field["description"] for field in tool.input_schema["properties"].values())


def test_search_is_that_of_the_retriever(serving: Serving, kinds: Path) -> None:
    result = called(tool_server(serving), "search", query="is the otter calm ?", k=3)
    alone = load(kinds / "generative", device="cpu").search("is the otter calm ?", 3)
    assert [hit["id"] for hit in found(result)["hits"]] == [hit.id for hit in alone]
    assert found(result)["hits"][0]["text"] == alone[0].text


def test_search_takes_the_ids_that_are_allowed(serving: Serving, kinds: Path) -> None:
    second = load(kinds / "generative", device="cpu").search("is the otter calm ?", 3)[1].id
    result = called(tool_server(serving), "search", query="is the otter calm ?", allow=[second])
    assert [hit["id"] for hit in found(result)["hits"]] == [second]


def test_search_shows_metadata_where_it_is_asked_for(serving: Serving) -> None:
    asked = {"query": "alert", "retriever": "hostile", "k": 1}
    (plain,) = found(called(tool_server(serving), "search", **asked))["hits"]
    (whole,) = found(called(tool_server(serving), "search", **asked, metadata=True))["hits"]
    assert set(plain) == {"id", "score", "title", "text"}
    assert whole == plain | {"metadata": whole["metadata"]}
    assert set(whole["metadata"]) == {"year"}


def test_hops_are_those_of_the_stream(serving: Serving, kinds: Path) -> None:
    result = called(tool_server(serving), "hops", query="is the otter calm ?", retriever="hops")
    streamed = list(load(kinds / "hops", device="cpu").stream("is the otter calm ?"))
    hops = found(result)["hops"]
    assert [hop["chain"] for hop in hops] == [[hit.id for hit in hop.chain] for hop in streamed]


@pytest.mark.parametrize(
    ("retriever", "steps", "most"),
    [("hops", None, 1), ("hops", "fixed", 2), ("generative", None, 2), ("generative", "ranked", 1)],
)
def test_hops_heed_their_largest_number(
    serving: Serving, retriever: str, steps: str | None, most: int
) -> None:
    how = {"max": most} if steps is None else {"steps": steps, "max": most}
    result = called(tool_server(serving), "hops", query="is the otter calm ?", retriever=retriever, **how)
    assert [hop["number"] for hop in found(result)["hops"]] == list(range(1, most + 1))


def test_passages_that_are_there_are_shown_and_the_others_are_named(serving: Serving) -> None:
    ids = [passage.id for passage in HOSTILE]
    server = tool_server(serving)
    body = found(called(server, "passages", ids=["nowhere", *ids, "x" * 200], retriever="hostile"))
    texts = [(one["id"], one["text"]) for one in body["passages"]]
    assert texts == [(passage.id, passage.text) for passage in HOSTILE]
    assert body["unknown"] == ["nowhere", "x" * 100]
    assert "unknown" not in found(called(server, "passages", ids=ids, retriever="hostile"))


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("search", {}, "the call of search cannot be used: query: it is missing; expected a text"),
        ("search", {"query": " "}, "a query is empty"),
        ("search", {"query": "x", "k": 101}, "k is at most 100"),
        ("search", {"query": "x", "retriever": "no"}, "there are generative, hops, hostile"),
        ("search", {"query": "x", "where": "(("}, "filter, column 3"),
        ("search", {"query": "x" * 4001}, "4,000"),
        ("hops", {"query": "x", "steps": "fixed", "max": 9}, "max is at most 8"),
        ("hops", {"query": "x", "steps": "single", "max": 2}, "max: a single step has no hops"),
        ("hops", {"query": "x", "maximum": 1}, "maximum: there is no such field (did you mean max?)"),
        ("search", {"query": "x", "filter": "y>1"}, "filter: there is no such field; there are retriever, w"),
        ("search", {"query": "x", "top_k": 1}, "top_k: there is no such field (did you mean k?); there are"),
        ("search", {"query": "x", "": 1}, "search cannot be used: '': there is no such field; there are"),
        ("search", {"query": "x", "k": "3"}, 'k: expected a whole number (at least 1), got "3".'),
        ("passages", {"ids": ["nowhere", "never"]}, "'nowhere', 'never': the corpus of generative has no"),
        ("hops", {"query": "x", "steps": "dynamic", "retriever": "hostile"}, 'choose steps "fixed", or'),
        ("passages", {"ids": []}, "ids: expected a list (at least 1 item), each a text, got an empty"),
        ("passages", {"ids": ["a"] * 101}, "ids: the number of ids is at most 100"),
        ("magic", {}, "there is no tool of this name; there are search, hops, passages."),
    ],
)  # fmt: skip
def test_what_cannot_be_called(serving: Serving, tool: str, arguments: Any, said: str) -> None:
    result = called(tool_server(serving), tool, **arguments)
    assert result.is_error
    assert said in result.content[0].text


def test_failures(caplog: pytest.LogCaptureFixture) -> None:
    serving = serving_of({"slow": Slow()}, RequestLimits(seconds=0.3))
    server = tool_server(serving)
    failed = called(server, "search", query="boom")
    assert (failed.is_error, "its log says why" in failed.content[0].text) == (True, True)
    assert "ZeroDivisionError" in caplog.text
    assert "the corpus of slow" in called(server, "search", query="bad").content[0].text
    serving.find(None).version.searcher.retriever.gate.clear()  # type: ignore[attr-defined]
    assert "took longer than" in called(server, "search", query="a").content[0].text
    assert not serving.find(None).version.worker._waiting
    serving.find(None).version.searcher.retriever.gate.set()  # type: ignore[attr-defined]
    serving.close()


def test_over_standard_input_and_output(tmp_path: Path) -> None:
    """A line on standard output that is no message would reach the client as an error."""
    folder = hostile_folder(tmp_path / "one")
    code = (
        "import sys, warnings; print('stray'.upper(), file=sys.stderr); "
        "from grls.cli import main; sys.exit(main())"
    )
    command = ["-c", code, "serve", f"named={folder}", "--mcp", "stdio"]
    environment = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "PATH": os.environ["PATH"]}
    log = (tmp_path / "log").open("w+")
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(message)

    async def call() -> Any:
        from mcp import stdio_client

        parameters = StdioServerParameters(command=sys.executable, args=command, env=environment)
        async with Client(stdio_client(parameters, errlog=log), message_handler=hear) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            return names, await client.call_tool("search", {"query": "alert"})

    names, result = asyncio.run(call())
    assert names == ["search", "hops", "passages"]
    assert found(result)["hits"]
    assert not [message for message in heard if isinstance(message, Exception)]
    log.seek(0)
    said = log.read().splitlines()  # nothing failed, and nothing of the client is logged
    assert said[:2] == ["STRAY", f"Loading named={folder} for standard input and output"]
    assert said[2].startswith("named: bm25, 5 passages, loaded in ")
    assert said[3:] == ["Ready: an agent may ask"]


STDIO = """
import sys
from grls.serve.serving import Serving
opened = Serving.load
def {how}
Serving.load = late
from grls.cli import main
sys.exit(main())
"""


LATE = "late(*given, **named):\n import time\n time.sleep(1)\n return opened(*given, **named)"


def answers(folder: Path, how: str, *lines: bytes) -> tuple[list[Any], int, str]:
    """What a server says to `initialize`, to a search and to further lines, how it ends, and its log."""
    from subprocess import PIPE, Popen

    environment = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", STDIO.format(how=how), "serve", str(folder), "--mcp", "stdio"]
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    calls = [("initialize", client), ("tools/call", {"name": "search", "arguments": {"query": "alert"}})]
    said = []
    messages = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(calls)
    ]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for line in (*(json.dumps(message).encode() for message in messages), *lines):
            server.stdin.write(line + b"\n")
            server.stdin.flush()
            said.append((json.loads(server.stdout.readline()), time.monotonic()))
        _, log = server.communicate()
    return said, server.returncode, log.decode()


def test_the_client_is_answered_while_retrievers_are_opened(tmp_path: Path) -> None:
    ((first, early), (second, late)), code, log = answers(hostile_folder(tmp_path / "one"), LATE)
    assert first["result"]["serverInfo"]["name"] == "grls"
    assert json.loads(second["result"]["content"][0]["text"])["hits"]
    assert late - early >= 1
    assert (code, "Ready: an agent may ask" in log) == (0, True)


def test_what_the_protocol_cannot_read_is_answered(tmp_path: Path) -> None:
    """The package mcp drops such lines, and the client would wait for ever; the server goes on after them."""
    call = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search","arguments":%s}}'
    half = "got characters that are not Unicode (half of a surrogate pair)"
    said_of_arguments = {
        rb'{"query":"\ud800"}': f"query: expected a text (at least 1 character), {half}",
        rb'{"query":"x","where":"\udc00=1"}': f"where: expected a text, or null, {half}",
        rb'{"query":"x","allow":["\udc00"]}': f"allow.0: expected a text, {half}",
        rb'{"query":"x","\udc00":1}': "half of a surrogate pair",
        b'{"query":"x","k":' + b"[" * 300 + b"]" * 300 + b"}": "k: expected a whole number (at least 1)",
    }
    said_of_lines = {
        rb'{"jsonrpc":"2.0","id":7,"method":"ping\ud800"}': (7, "expected a request"),
        rb'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":"\ud800"}}': (7, "expected a request"),
        b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}': (7, "expected a request"),
        rb'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}': (None, "expected a request"),
        b'{"jsonrpc":"2.0","id":7.0,"method":"ping"}': (None, "id (a whole number or a text)"),
        b'[{"jsonrpc":"2.0","id":7,"method":"ping"}]': (None, "expected a request"),
        b'{"jsonrpc":"2.0","id":7,': (None, "the message is no JSON (Expecting property name"),
        b'{"jsonrpc":"2.0","id":7,"method":"\xff"}': (None, "send one a line, in UTF-8"),
        b"[" * 10**5: (None, "the message is no JSON (maximum recursion depth"),
    }
    lines = [*(call % arguments for arguments in said_of_arguments), *said_of_lines]
    answered = rb'{"jsonrpc":"2.0","id":7,"result":{}}'  # nothing was asked, and it needs no answer
    last_lines = answered + b"\n" + call % b'{"query":"alert"}'
    said, code, log = answers(hostile_folder(tmp_path / "one"), LATE, *lines, last_lines)
    _, _, *results, last = [answer for answer, _ in said]
    for answer, expected in zip(results, said_of_arguments.values(), strict=False):
        assert (answer["id"], answer["result"]["isError"]) == (7, True)
        assert expected in answer["result"]["content"][0]["text"]
    for answer, expected in zip(results[len(said_of_arguments) :], said_of_lines.values(), strict=True):
        name, text = expected
        assert answer["id"] == name
        assert text in answer["error"]["message"]
    assert json.loads(last["result"]["content"][0]["text"])["hits"]
    assert (code, "Traceback" in log) == (0, False)


def test_a_folder_that_cannot_be_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What can be seen at once ends the server; what is seen later is said to the agent, and in the log."""
    assert main(["serve", str(tmp_path), "--mcp", "stdio"]) == 1
    assert "no retriever here" in capsys.readouterr().err
    folder = hostile_folder(tmp_path / "one")
    (folder / "corpus.jsonl").write_text("damaged")
    how = "late(*given, **named):\n return opened(*given, **named)"
    (_, (answer, _)), code, log = answers(folder, how)
    assert answer["result"]["isError"]
    assert answer["result"]["content"][0]["text"].startswith("the retrievers cannot be opened: ")
    assert code == 1
    assert "error: " in log


def test_over_http(serving: Serving, tmp_path: Path) -> None:
    import httpx

    (tmp_path / "keys").write_text("a key of enough characters\n")
    own = serving_of({"hostile": hostile_folder(tmp_path / "one")})
    with behind_socket(own, tools=True) as address:
        assert found(called(f"{address}/mcp", "search", query="alert"))["hits"]
        refused = called(f"{address}/mcp", "search", query="alert", filter="year>2001")
        assert "filter: there is no such field" in refused.content[0].text
        assert httpx.get(f"{address}/metrics").text.count('route="/mcp"')
        call = {"name": "search", "arguments": {"query": "alert", "k": float("nan")}}
        content = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        said = httpx.post(f"{address}/mcp", content=content, headers=headers).json()["result"]
        assert said["isError"]
        assert "k: expected a whole number (at least 1), got NaN." in said["content"][0]["text"]
    own = serving_of({"hostile": tmp_path / "one"})
    with behind_socket(own, AccessOptions(keys=str(tmp_path / "keys")), tools=True) as address:
        assert httpx.post(f"{address}/mcp", json={}).status_code == 401


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("access: {rate: 3}", "leave access out"),
        ("answer: {model: m}", "leave answer out"),
        ("", "--mcp"),
    ],
)
def test_wrong_options(tmp_path: Path, options: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(options)
    given = ["--mcp", "stdio", f"--server={file}"] if options else ["--mcp", "pigeon"]
    assert main(["serve", str(hostile_folder(tmp_path / "one")), *given]) in (1, 2)
    assert said in capsys.readouterr().err


def test_without_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["serve", str(hostile_folder(tmp_path / "one")), "--mcp", "stdio"]) == 1
    captured = capsys.readouterr()
    assert 'pip install "grls[mcp]"' in captured.err
    assert not captured.out
