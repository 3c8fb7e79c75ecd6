"""The tools of an agent, called by the client of the package mcp: in the process, over stdio, over HTTP."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

import anyio
import pytest
from serve_helpers import HOSTILE, Slow, behind_socket, hostile_folder, serving_of
from serve_process import GRLS

pytest.importorskip("mcp", reason='needs the extra mcp: pip install "grls[mcp]"')

from mcp import Client, StdioServerParameters, stdio_client

from grls.api.opening import load
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError
from grls.retrieve.bm25 import BM25Retriever
from grls.serve.options import AccessOptions, ServerOptions
from grls.serve.serving import Serving
from grls.serve.tools.server import message_of, tool_server
from grls.serve.tools.stdio import HANDSHAKES, STATELESS, first_answer

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
    """The content of a result: compact JSON without what is not there; structured only if it is that, too."""
    assert not result.is_error, result.content[0].text
    (content,) = result.content
    body = json.loads(content.text)
    assert result.structured_content in (None, body)
    assert content.text == json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    assert "null" not in content.text
    return body


def ids(result: Any) -> list[str]:
    return [passage["id"] for passage in found(result)["results"]]


def test_what_is_listed(serving: Serving) -> None:
    async def listed() -> Any:
        async with Client(tool_server(serving)) as client:
            return client.instructions, (await client.list_tools()).tools

    instructions, tools = asyncio.run(listed())
    assert "Retrievers: generative, hops, hostile." in instructions
    needed = {"search": ["query"], "fetch": ["id"], "hops": ["query"], "retrievers": None}
    assert {tool.name: tool.input_schema.get("required") for tool in tools} == needed
    for tool in tools:
        assert tool.description
        assert tool.annotations.read_only_hint
        assert (tool.output_schema is not None) == (tool.name in ("search", "fetch"))
        assert tool.input_schema["additionalProperties"] is False
        assert all(field["description"] for field in tool.input_schema["properties"].values())


def test_search_is_that_of_the_retriever(serving: Serving, kinds: Path) -> None:
    asked = {"query": "is the otter calm ?", "k": 3}
    result = called(tool_server(serving), "search", **asked)
    alone = load(kinds / "generative", device="cpu").search("is the otter calm ?", 3)
    assert ids(result) == [hit.id for hit in alone]
    score = pytest.approx(alone[0].score)
    first = {"id": alone[0].id, "title": alone[0].id, "url": "", "text": alone[0].text, "score": score}
    assert result.structured_content["results"][0] == first
    assert ids(called(tool_server(serving), "search", **asked, allow=[alone[1].id])) == [alone[1].id]


def test_metadata_and_addresses(tmp_path: Path) -> None:
    """A text is cut, an address is one that a browser opens, and fetch shows the whole passage."""
    links = ["https://example.org/a", "ftp://example.org/b", "javascript:1", 4, "/c"]
    passages = [Passage(f"p{n}", f"otter {'x' * 1000}", "Otters" if n else "") for n in range(len(links))]
    metadata = [{"url": "http://elsewhere", "link": link} for link in links]
    BM25Retriever(Corpus.from_passages(passages, metadata=metadata)).save_pretrained(tmp_path)
    options = ServerOptions({"one": str(tmp_path)}, url_field="link")
    serving = Serving(options)
    serving.load()
    results = found(called(tool_server(serving), "search", query="otter", metadata=True))["results"]
    assert [(passage["title"], passage["url"]) for passage in results] == [
        ("p0", links[0]), ("Otters", ""), ("Otters", ""), ("Otters", ""), ("Otters", "")
    ]  # fmt: skip
    assert results[0]["metadata"] == metadata[0]
    assert results[0]["text"] == passages[0].text[:300] + "…"
    whole = {"id": "p0", "title": "p0", "text": passages[0].text, "url": links[0], "metadata": metadata[0]}
    result = called(tool_server(serving), "fetch", id="p0")
    assert found(result) == result.structured_content == whole
    serving.close()
    with pytest.raises(ConfigError, match="no passage has this field of metadata; there are link, url"):
        Serving(options._replace(url_field="lnk")).load()


def test_passages_of_all_retrievers_are_fetched(serving: Serving) -> None:
    server = tool_server(serving)
    for number, passage in enumerate(HOSTILE):
        whole = found(called(server, "fetch", id=passage.id))
        assert whole == {
            "id": passage.id, "title": passage.title, "text": passage.text, "url": "",
            "metadata": {"year": 2000 + number},
        }  # fmt: skip


FOLDER = {"steps": "dynamic", "chains": 2, "done_bias": 0.5}
"""The options that the folder of hops stores, beside the number of hops."""


@pytest.mark.parametrize(
    ("retriever", "given", "hops"),
    [
        ("hops", {}, None),
        ("hops", {"max": 1}, FOLDER | {"max": 1}),
        ("hops", {"steps": "fixed", "max": 2}, {"steps": "fixed", "max": 2}),
        ("generative", {}, {"steps": "fixed", "max": 2}),
        ("generative", {"max": 3}, {"steps": "fixed", "max": 3}),
        ("generative", {"steps": "ranked", "max": 2}, {"steps": "ranked", "max": 2}),
        ("generative", {"steps": "single"}, None),
    ],
)
def test_hops(serving: Serving, kinds: Path, retriever: str, given: Any, hops: Any) -> None:
    """They are those of the retriever: a chain is shown whole, and others are rankings."""
    question = "is the otter calm ?"
    result = called(tool_server(serving), "hops", query=question, retriever=retriever, k=1, **given)
    searcher = load(kinds / retriever, device="cpu")
    searcher = searcher if hops is None else searcher.hops(**hops)
    hits = searcher.search(question, 1 if given.get("steps") in ("ranked", "single") else 100)
    assert [(one["id"], one.get("hop")) for one in found(result)["results"]] == [(h.id, h.hop) for h in hits]
    assert result.structured_content is None


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("search", {"query": " "}, "a query is empty"),
        ("search", {"query": "x", "k": 101}, "k is at most 100"),
        ("hops", {"query": "x", "steps": "fixed", "max": 9}, "max is at most 8"),
        ("hops", {"query": "x", "steps": "single", "max": 2}, "max: a single step has no hops"),
        ("fetch", {"id": "nowhere"}, "the corpus of generative and hops and hostile has no passage of this"),
        ("fetch", {"id": "r0", "retriever": "hostile"}, "the corpus of hostile has no passage of this id"),
        ("fetch", {"ids": ["r0"]}, "the call of fetch cannot be used: id: Field required"),
        ("hops", {"query": "x", "steps": "dynamic", "retriever": "hostile"}, 'choose steps "fixed", or'),
        ("magic", {}, "there is no tool of this name; there are search, fetch, hops, retrievers."),
    ],
)  # fmt: skip
def test_what_cannot_be_called(serving: Serving, tool: str, arguments: Any, said: str) -> None:
    result = called(tool_server(serving), tool, **arguments)
    assert result.is_error
    assert said in result.content[0].text


def test_failures(caplog: pytest.LogCaptureFixture) -> None:
    serving = serving_of({"slow": Slow()})
    server = tool_server(serving)
    failed = called(server, "search", query="boom")
    assert (failed.is_error, "its log says why" in failed.content[0].text) == (True, True)
    assert "ZeroDivisionError" in caplog.text
    assert "the corpus of slow" in called(server, "search", query="bad").content[0].text
    serving.close()


async def walked(client: Any) -> None:
    """What a client does that knows nothing of grls: list, filter by what is listed, fetch what it finds."""
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == ["search", "fetch", "hops", "retrievers"]
    (listed,) = found(await client.call_tool("retrievers"))["retrievers"]
    query = {"query": "right alert", "where": listed["fields"][0]["where"]}
    searched = await client.call_tool("search", query)
    assert ids(searched) == [HOSTILE[-1].id] == [searched.structured_content["results"][0]["id"]]
    fetched = await client.call_tool("fetch", {"id": HOSTILE[-1].id})
    assert fetched.structured_content["metadata"] == {"year": 2004}
    assert HOSTILE[-1].id in ids(await client.call_tool("hops", {"query": "right", "max": 2}))
    refused = await client.call_tool("search", {"query": "right", "filter": "year>2001"})
    fields = "allow, k, metadata, query, retriever, where"
    assert refused.content[0].text.endswith(f"filter: there is no such field; there are {fields}.")
    near = await client.call_tool("search", {"query": "right", "wher": "year>2001"})
    assert near.content[0].text.endswith("did you mean where?")


ENVIRONMENT = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "PATH": os.environ["PATH"]}


def test_over_standard_input_and_output(tmp_path: Path) -> None:
    """A line on standard output that is no message would reach the client as an error.

    Before the first answer nothing is imported that takes time.
    """
    folder = hostile_folder(tmp_path / "one")
    code = """
import sys
from grls.cli import main
from grls.serve.tools import stdio
def first_answer(*asked, answer=stdio.first_answer):
    print({"numpy", "regex", "torch", "mcp", "fastapi"} & set(sys.modules), file=sys.stderr)
    return answer(*asked)
stdio.first_answer = first_answer
sys.exit(main())
"""
    command = ["-c", code, "serve", f"named={folder}", "--mcp", "stdio"]
    log = (tmp_path / "log").open("w+")
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(message)

    async def walk() -> None:
        parameters = StdioServerParameters(command=sys.executable, args=command, env=ENVIRONMENT)
        server = stdio_client(parameters, errlog=log)
        async with Client(server, message_handler=hear, mode="legacy") as client:
            await walked(client)

    asyncio.run(walk())
    assert not [message for message in heard if isinstance(message, Exception)]
    log.seek(0)
    said = log.read().splitlines()  # nothing failed, and nothing of the client is logged
    assert said[:2] == [f"Loading named={folder} for standard input and output", "set()"]
    assert said[2].startswith("named: bm25, 5 passages, loaded in ")
    assert said[3:] == ["Ready: an agent may ask"]


def test_the_program_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passages = [Passage("0", "Otters eat fish."), Passage("1", "A holt is an otter's den.")]
    BM25Retriever(Corpus.from_passages(passages)).save_pretrained(tmp_path / "runs" / "fitted")
    guide = (ROOT / "docs" / "guides" / "agents.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    here = f'command={sys.executable!r}, env={ENVIRONMENT!r}, args=["-m", "grls", '
    assert 'command="grls", args=[' in program
    monkeypatch.chdir(tmp_path)
    exec(program.replace('command="grls", args=[', here), {})
    assert capsys.readouterr().out == "Otters eat fish.\n"


def request(method: str, params: object, number: object = 7) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": CLIENT["clientInfo"],
    "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
}


def test_the_first_answer_is_that_of_the_package(serving: Serving) -> None:
    from mcp.shared.message import SessionMessage
    from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

    async def answered(line: bytes) -> Any:
        server = tool_server(serving)
        requests, asked = anyio.create_memory_object_stream[Any](1)
        sent, answers = anyio.create_memory_object_stream[Any](1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run, asked, sent, server.create_initialization_options())
            await requests.send(SessionMessage(message_of(line)))
            answer = await answers.receive()
            requests.close()
        return json.loads(answer.message.model_dump_json(by_alias=True, exclude_unset=True))

    assert (HANDSHAKES, (STATELESS,)) == (HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS)
    lines = [request("initialize", CLIENT | {"protocolVersion": one}) for one in (*HANDSHAKES, "2099-01-01")]
    for line in (*lines, request("server/discover", {"_meta": ENVELOPE}, "a")):
        assert first_answer(line, serving.retrievers) == asyncio.run(answered(line)), line
    for line in (
        b"", b"{", b"[]", b"[" * 10**5, b'{"jsonrpc":"2.0","method":"initialize"}', rb'"\ud800"',
        request("tools/list", {}), request("initialize", []), request("initialize", CLIENT, None),
        request("initialize", CLIENT, "\ud800"), request("initialize", CLIENT | {"clientInfo": {}}),
        request("initialize", CLIENT | {"protocolVersion": 1}), request("server/discover", {}),
        request("initialize", CLIENT | {"capabilities": None}),
        request("server/discover", {"_meta": ENVELOPE | {"io.modelcontextprotocol/protocolVersion": "2"}}),
    ):  # fmt: skip
        assert first_answer(line, []) is None, line


HELD = """
import builtins, os, sys, time
def held(name, *given, imports=builtins.__import__, **named):
    while name.split(".")[0] in ("mcp", "fastapi", "torch") and not os.path.exists(os.environ["GATE"]):
        time.sleep(0.01)
    return imports(name, *given, **named)
builtins.__import__ = held
"""
"""Lets nothing be imported that takes time, until the test has the first answer."""


def answers(folder: Path, code: str, *lines: bytes) -> tuple[list[Any], int, str]:
    """What a server says to `initialize`, to a search and to further lines, how it ends, and its log."""
    gate = folder.parent / "gate"
    environment = ENVIRONMENT | {"GATE": str(gate)}
    command = [sys.executable, "-c", code + GRLS, "serve", str(folder), "--mcp", "stdio"]
    call = request("tools/call", {"name": "search", "arguments": {"query": "alert"}})
    said = []
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for line in (request("initialize", CLIENT, 0), call, *lines):
            server.stdin.write(line + b"\n")
            server.stdin.flush()
            said.append(json.loads(server.stdout.readline()))
            gate.touch()
        _, log = server.communicate()
    return said, server.returncode, log.decode()


def test_the_client_is_answered_at_once_and_whatever_it_says(tmp_path: Path) -> None:
    """The package mcp drops lines that it cannot read, so that the client would wait for ever."""
    call = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search","arguments":%s}}'
    half = "unable to parse raw data as a unicode string"
    said_of_arguments = {
        rb'{"query":"\ud800"}': f"query: Input should be a valid string, {half}",
        rb'{"query":"x","where":"\udc00=1"}': f"where: Input should be a valid string, {half}",
        rb'{"query":"x","allow":["\udc00"]}': f"allow.0: Input should be a valid string, {half}",
        rb'{"query":"x","\udc00":1}': half,
        b'{"query":"x","k":' + b"[" * 300 + b"]" * 300 + b"}": "k: Input should be a valid integer",
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
    said, code, log = answers(hostile_folder(tmp_path / "one"), HELD, *lines, last_lines)
    first, second, *results, last = said
    assert (first["id"], first["result"]["serverInfo"]["name"]) == (0, "grls")
    assert json.loads(second["result"]["content"][0]["text"])["results"]
    for answer, expected in zip(results, said_of_arguments.values(), strict=False):
        assert (answer["id"], answer["result"]["isError"]) == (7, True)
        assert expected in answer["result"]["content"][0]["text"]
    for answer, expected in zip(results[len(said_of_arguments) :], said_of_lines.values(), strict=True):
        name, text = expected
        assert answer["id"] == name
        assert text in answer["error"]["message"]
    assert json.loads(last["result"]["content"][0]["text"])["results"]
    assert (code, "Traceback" in log, "Ready: an agent may ask" in log) == (0, False, True)


def search(number: object, **params: Any) -> bytes:
    return request("tools/call", {"name": "search", "arguments": {"query": "alert"}} | params, number)


@pytest.mark.parametrize("envelope", [{}, {"_meta": ENVELOPE}])
def test_all_lines_of_a_pipe_are_answered(tmp_path: Path, envelope: Any) -> None:
    """The input has ended long before the retrievers are open; more is asked than the queue takes."""
    first = [] if envelope else [request("initialize", CLIENT, 0)]
    withdrawn = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    calls = [search(number, **envelope) for number in range(1, 301)]
    lines = [*first, calls[0], json.dumps(withdrawn).encode(), *calls[1:], b"{"]
    command = [sys.executable, "-c", GRLS, "serve", str(hostile_folder(tmp_path / "one")), "--mcp", "stdio"]
    ended = run(command, input=b"\n".join(lines), capture_output=True, env=ENVIRONMENT)
    assert ended.returncode == 0, ended.stderr
    said = {answer["id"]: answer for answer in map(json.loads, ended.stdout.splitlines())}
    assert said.keys() == {*range(1 if envelope else 0, 301), None} - {1}
    assert not [one for one in range(2, 301) if said[one]["result"].get("isError")]


@pytest.mark.parametrize(("leaves", "code"), [("kill", 141), ("deaf", 141), ("signal", 143)])
def test_a_client_that_leaves_ends_it(tmp_path: Path, leaves: str, code: int) -> None:
    command = [sys.executable, "-c", GRLS, "serve", str(hostile_folder(tmp_path / "one")), "--mcp", "stdio"]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=ENVIRONMENT) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        for line in (request("initialize", CLIENT, 0), search(1)):
            server.stdin.write(line + b"\n")
            server.stdin.flush()
            server.stdout.readline()
        if leaves == "signal":
            server.terminate()
        else:
            server.stdout.close()
            server.stdin.write(search(2) + b"\n")
            server.stdin.flush()
        if leaves == "kill":
            server.stdin.close()
        assert server.wait(60) == code
        assert b"Traceback" not in server.stderr.read()


@pytest.mark.parametrize("task", ["message_of", "answer_call"])
def test_a_signal_ends_it_in_any_task(tmp_path: Path, task: str) -> None:
    """It comes while a line is read, or while a call runs: in the main task, or in another one."""
    code = f"""
import os, signal
from grls.serve.tools import server
usual = server.{task}
server.{task} = lambda *given: (os.kill(os.getpid(), signal.SIGTERM), usual(*given))[1]
{GRLS}"""
    command = [sys.executable, "-c", code, "serve", str(hostile_folder(tmp_path / "one")), "--mcp", "stdio"]
    lines = b"\n".join([request("initialize", CLIENT, 0), search(1)])
    ended = run(command, input=lines, capture_output=True, env=ENVIRONMENT)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (143, False), ended.stderr.decode()


def test_a_folder_that_cannot_be_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What can be seen at once ends the server; what is seen later is said to the agent, and in the log."""
    assert main(["serve", str(tmp_path), "--mcp", "stdio"]) == 1
    assert "no retriever here" in capsys.readouterr().err
    folder = hostile_folder(tmp_path / "one")
    (folder / "corpus.jsonl").write_text("damaged")
    (_, answer), code, log = answers(folder, "")
    assert answer["result"]["isError"]
    assert answer["result"]["content"][0]["text"].startswith("the retrievers cannot be opened: ")
    assert code == 1
    assert "error: " in log


def test_over_http(tmp_path: Path) -> None:
    import httpx

    async def walk(address: str) -> None:
        async with Client(address) as client:
            await walked(client)

    (tmp_path / "keys").write_text("a key of enough characters\n")
    own = serving_of({"hostile": hostile_folder(tmp_path / "one")})
    with behind_socket(own, tools=True) as address:
        asyncio.run(walk(f"{address}/mcp"))
        assert httpx.get(f"{address}/metrics").text.count('route="/mcp"')
        stream = httpx.get(f"{address}/mcp", headers={"Accept": "text/event-stream"})
        assert stream.status_code == 405  # it would have no end
        call = {"name": "search", "arguments": {"query": "alert", "k": float("nan")}}
        content = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        said = httpx.post(f"{address}/mcp", content=content, headers=headers).json()["result"]
        assert said["isError"]
        assert "k: Input should be a valid integer, got nan." in said["content"][0]["text"]
    own = serving_of({"hostile": tmp_path / "one"})
    with behind_socket(own, AccessOptions(keys=str(tmp_path / "keys")), tools=True) as address:
        refused = httpx.post(f"{address}/mcp", json={})
        assert refused.status_code == 401
