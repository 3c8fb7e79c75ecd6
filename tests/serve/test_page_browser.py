"""The page at / in a browser: questions are asked, hops come, errors show, streams are cancelled.

How it looks and is used: what fits, where the focus goes, keys, screen readers, a narrow screen.
"""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_browser import PATIENCE, QUESTION, Walking, ask, ids
from serve_helpers import HOSTILE, behind_socket, serving_of
from serve_process import until

import grls
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.retrieve.bm25 import BM25Retriever
from grls.serve.options import AccessOptions, ServerOptions
from grls.serve.serving import Serving


def test_a_question_is_typed_and_its_hops_appear(page: Any, address: str, kinds: Path) -> None:
    *_, last = grls.load(kinds / "hops", device="cpu").stream(QUESTION)
    page.goto(address)
    ask(page)
    assert ids(page) == [hit.id for hit in last.chain]
    assert page.locator(".trail .trail-passage").count() == len(last.chain)
    assert (page.locator(".done").count() == 1) == last.done
    assert "passage" in page.text_content("#live")
    length = f"{len(last.chain)} passage{'s' * (len(last.chain) > 1)}"
    assert page.text_content(".timing").startswith(f"{length}{' and DONE' * last.done} in ")
    assert "q=is+the+otter+kind" in page.url
    text = page.text_content("li[data-id] .prose")
    assert text == last.chain[0].text
    page.click(".card-head >> nth=0")
    page.wait_for_selector(".metadata >> text=No metadata")
    link = page.get_attribute(".card-more a", "href")
    assert httpx.get(address + link).json()["id"] == last.chain[0].id
    page.click("text=Why is it here?")
    page.wait_for_selector(".why .report")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1300
    assert last.chain[0].id in page.text_content(".why .report")


def test_a_ranking_and_its_empty_state(page: Any, address: str, kinds: Path) -> None:
    page.goto(address)
    page.select_option("#retriever", "bm25")
    page.fill("#k", "3")
    ask(page)
    hits = grls.load(kinds / "bm25", device="cpu").search(QUESTION, k=3)
    assert ids(page) == [hit.id for hit in hits]
    assert "decodes no tokens" in page.text_content("#agreement")
    page.click(".card-head >> nth=0")
    assert page.locator("text=See the beam").count() == 0
    ask(page, "zzzz qqqq")
    assert "Nothing was found" in page.text_content(".empty")


def test_an_error_is_shown_in_plain_words(page: Any, address: str) -> None:
    page.goto(address)
    page.fill("#where", "year>=")
    ask(page)
    problem = page.locator("[role=alert]")
    assert "cannot be answered like this" in problem.text_content()
    assert "expected a value" in problem.text_content()
    page.fill("#where", "")
    page.click("text=Ask again")
    page.wait_for_selector("li[data-id]")
    assert problem.count() == 0


def test_what_is_typed_before_the_server_has_answered_stays(page: Any, address: str) -> None:
    held: list[Any] = []
    page.route("**/v1/retrievers", lambda route: held.append(route))
    page.goto(address)
    page.fill("#where", "year>=")
    page.select_option("#steps", "single")
    page.fill("#question", QUESTION)
    page.press("#question", "Enter")
    until(lambda: page.evaluate("1") and len(held) == 1)
    held[0].continue_()
    assert "expected a value" in page.locator("[role=alert]").text_content()
    assert page.input_value("#where") == "year>="
    assert page.input_value("#steps") == "single"


def test_it_waits_for_a_server_that_loads(page: Any, hostile: Path) -> None:
    serving = Serving(ServerOptions({"one": str(hostile)}, device="cpu", tools=False))
    with behind_socket(serving) as address:
        page.goto(f"{address}/#q=right+alert")
        page.wait_for_selector("#start >> text=Loading one …")
        assert page.input_value("#question") == "right alert"
        assert page.locator("[role=alert]").count() == 0
        serving.load()
        page.wait_for_selector("li[data-id]")
        assert ids(page)[0] == HOSTILE[-1].id


def test_a_stream_is_cancelled_and_the_server_stops(page: Any) -> None:
    retriever = Walking()
    serving = serving_of({"slow": retriever})
    with behind_socket(serving) as address:
        page.goto(f"{address}/#q=a")
        page.wait_for_selector("li[data-id]")
        assert page.locator("#cancel").is_visible()
        page.keyboard.press("Escape")
        page.wait_for_selector("text=Cancelled")
        assert ids(page) == ["a"]
        worker = serving.retrievers["slow"].version.worker
        until(lambda: len(retriever.batches) == 2 and worker._batch_jobs[0].future.cancelled())
        retriever.gate.set()  # the hop that runs ends; none follows
        until(lambda: not retriever.gate.is_set())
        retriever.gate.set()
        assert httpx.post(f"{address}/v1/search", json={"query": "b"}).status_code == 200
        assert retriever.batches == [("a", 1), ("a", 2), (["b"], 10)]
        assert len(worker) == 0


def test_two_retrievers_side_by_side(page: Any, address: str) -> None:
    page.goto(address)
    ask(page, retriever="generative", other="bm25", steps="single")
    one, other = ids(page, "A"), ids(page, "B")
    common = [name for name in one if name in other]
    assert f"{len(common)} passage" in page.text_content("#agreement")
    assert page.locator(".answer[data-letter=A] .agrees").count() == len(common)
    first = page.locator(f".answer[data-letter=A] li[data-id='{common[0]}'] .also")
    assert first.text_content() == f"also #{other.index(common[0]) + 1} in B"
    assert "with=bm25" in page.url


def test_the_beam_is_walked_token_by_token(page: Any, address: str) -> None:
    page.goto(address)
    ask(page)
    page.click(".card-head >> nth=0")
    page.click("text=See the beam")
    page.wait_for_selector(".tree")
    body = {"query": QUESTION, "retriever": "hops"}
    trace = httpx.post(f"{address}/v1/trace", json=body).json()
    steps = trace["steps"]
    assert page.locator(".candidates tbody tr").count() == len(steps[0]["tokens"])
    assert page.locator(".constraint li").count() == len(steps[0]["beams"])
    allowed = f"{steps[0]['beams'][0]['allowed']} of {trace['vocabulary']} tokens allowed"
    assert page.text_content(".allowed") == allowed
    page.keyboard.press("ArrowRight")
    assert page.text_content(".where") == f"token 2 of {len(steps)}"
    fates = page.locator(".candidates .fate").all_text_contents()
    names = {"kept": "kept", "finished": "passage", "pruned": "dropped", "beaten": "beaten"}
    assert fates == [names[token["fate"]] for token in steps[1]["tokens"]]
    assert "beam=A1.2" in page.url
    page.click("[aria-label='Step before']")
    assert page.text_content(".where") == f"token 1 of {len(steps)}"
    assert page.locator(".results li").count() == len(trace["results"])
    page.keyboard.press("Escape")
    assert page.locator("#beam").is_hidden()


def test_a_view_can_be_shared(page: Any, address: str) -> None:
    page.goto(f"{address}/#q=is+the+otter+kind+%3F&r=generative&steps=fixed&hops=2&beam=A2.2")
    page.wait_for_selector(".tree")
    assert len(ids(page)) == 2
    assert "hop 2" in page.text_content(".beam h2")
    assert page.text_content(".where").startswith("token 2 of")
    assert page.input_value("#hops") == "2"
    page.go_back()
    page.goto(address)
    page.click(".example >> nth=0")
    page.wait_for_selector("li[data-id]")
    assert page.input_value("#question") == QUESTION
    page.go_back()
    page.wait_for_selector(".example")


def test_hostile_texts_stay_texts(page: Any, address: str) -> None:
    wild = "<img src=x onerror=alert(1)> alert right quote injected end event"
    page.goto(address)
    assert page.text_content(".example >> nth=1") == "<b>bold</b>"
    ask(page, wild, retriever="hostile")
    assert sorted(ids(page)) == sorted(passage.id for passage in HOSTILE)
    for place in range(len(HOSTILE)):
        page.click(f".card-head >> nth={place}")
    page.locator(".metadata .data").nth(len(HOSTILE) - 1).wait_for()  # the page allows no function in a text
    assert page.locator("main img, main script, main b").count() == 0
    assert page.locator("script").count() == 2
    shown = page.locator(".card-line code").all_text_contents()
    assert "<script>alert(1)</script>" in shown
    years = page.locator(".metadata dd").all_text_contents()
    assert sorted(years) == ["2000", "2001", "2002", "2003", "2004"]
    assert page.evaluate("(() => { try { document.body.innerHTML = '<i>'; } catch { return 'refused'; } })()")


def test_a_key_is_kept_in_the_tab_and_written_nowhere(page: Any, hostile: Path, tmp_path: Path) -> None:
    secret = "a-key-of-a-team-1"
    (tmp_path / "keys").write_text(f"{secret}\n")
    with behind_socket(serving_of({"one": hostile}), AccessOptions(keys=str(tmp_path / "keys"))) as address:
        page.goto(address)
        page.wait_for_selector("text=This server asks for an API key")
        page.click("text=Enter a key")
        page.fill("#key-field", secret)
        page.click("text=Use this key")
        page.wait_for_selector("text=Type a question above")
        ask(page, "alert")
        page.wait_for_selector("li[data-id]")
        page.click("#code-open")
        for tab in page.locator("[role=tab]").all():
            tab.click()
            assert secret not in page.text_content("#code-text")
        held = page.evaluate("[JSON.stringify(localStorage), document.cookie, location.href]")
        assert all(secret not in text for text in held)
        assert page.evaluate("sessionStorage.getItem('grls-key')") == secret


def test_a_request_as_code(page: Any, address: str) -> None:
    page.goto(address)
    page.fill("#where", 'a="it\'s \\"so\\""')
    ask(page, 'it\'s "kind" $HOME `x` ?', retriever="bm25")
    page.click("#code-open")
    texts = []
    for tab in page.locator("[role=tab]").all():
        tab.click()
        texts.append(page.text_content("#code-text"))
    curl, library, client, script = texts
    words = shlex.split(curl.replace("\\\n", ""))
    body = json.loads(words[-1])
    assert body == {
        "query": "it's \"kind\" $HOME `x` ?", "retriever": "bm25", "where": "a=\"it's \\\"so\\\"\"", "k": 10,
    }  # fmt: skip
    assert words[:2] == ["curl", f"{address}/v1/search"]
    named: dict[str, Any] = {}
    exec(client.split("answer =")[0], named)
    assert named["body"] == body
    compile(library, "library", "exec")
    assert "fetch(" in script


def test_an_answer_with_quotes_and_sources(page: Any, address: str) -> None:
    """The server of these tests has no language model, so its answers are made here."""
    wild = "<img src=x onerror=alert(1)>"
    source = {"id": "otter-calm", "title": wild, "text": "the otter is calm ."}
    quote = {"text": "the otter is calm", "closed": True, "sources": [source], "further": 2}
    pieces = [
        {"kind": "thought", "text": "look:", "quote": None}, {"kind": "quote", "text": wild, "quote": 0},
        {"kind": "answer", "text": "it is", "quote": None},
    ]  # fmt: skip
    body = {"retriever": "hops", "version": 1, "method": "riches", "query": "a", "ended": True}
    asked: list[Any] = []

    def answers(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(json=body | {"answer": "it is", "pieces": pieces, "quotes": [quote]})

    def retrievers(route: Any) -> None:
        route.fulfill(json=route.fetch().json() | {"answers": ["direct", "riches"]})

    page.route("**/v1/retrievers", retrievers)
    page.route("**/v1/answer", answers)
    page.goto(address)
    ask(page)
    page.select_option("#method", "riches")
    page.click("#answer-open")
    page.wait_for_selector(".quotes li")
    assert asked == [{"query": QUESTION, "retriever": "hops", "method": "riches"}]
    assert page.text_content(".written .quote") == f"{wild}1 "
    page.click(".written sup a")
    assert page.evaluate("document.activeElement.id") == "quote-0"
    page.click(".quotes summary")
    assert page.get_attribute(".quotes a", "href") == "/v1/passages/otter-calm?retriever=hops"
    assert page.locator("main img").count() == 0


def test_the_keyboard(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(".example")
    page.keyboard.press("/")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    page.wait_for_selector("#results[aria-busy=false] li[data-id]")
    page.keyboard.press("ArrowDown")
    focused = "document.activeElement.closest('li')?.dataset.id"
    assert page.evaluate(focused) == ids(page)[0]
    page.keyboard.press("Enter")
    assert page.get_attribute(".card-head >> nth=0", "aria-expanded") == "true"
    page.keyboard.press("b")
    page.wait_for_selector(".tree")
    page.focus("#question")
    page.keyboard.press("Escape")
    assert page.locator("#beam").is_hidden()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()


def test_an_example_is_asked_of_a_retriever_that_has_its_passages(page: Any, address: str) -> None:
    def retrievers(route: Any) -> None:
        body = route.fetch().json()
        for one in body["retrievers"]:
            one["examples"] = [QUESTION] if one["retriever"] == "bm25" else []
        route.fulfill(json=body)

    page.route("**/v1/retrievers", retrievers)
    page.goto(address)
    page.click(".example")
    page.wait_for_selector("li[data-id]")
    assert page.input_value("#retriever") == "bm25"


def test_the_focus_stays_where_the_keys_are(page: Any, address: str) -> None:
    """A beam that closes hands it back to its passage; Ask and Cancel hand it to each other."""
    focused = "document.activeElement.id || document.activeElement.className"
    page.goto(address)
    ask(page)
    page.focus(".card-head >> nth=0")
    page.keyboard.press("b")
    page.wait_for_selector(".tree")
    page.keyboard.press("Escape")
    assert page.evaluate(focused) == "card-head"
    held: list[Any] = []
    page.route("**/v1/stream", lambda route: held.append(route))
    page.focus("#ask")
    page.keyboard.press("Enter")
    until(lambda: page.evaluate(focused) == "cancel")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Cancelled")
    assert page.evaluate(focused) == "ask"


def test_the_theme_and_a_narrow_screen(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{address}/#q=is+the+otter+kind+%3F&beam=A1.1&with=bm25")
    page.wait_for_selector(".tree")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator(".options").is_hidden()
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.evaluate(background) != light


def test_what_readers_of_a_screen_need(page: Any, address: str) -> None:
    page.goto(address)
    ask(page)
    nameless = page.evaluate(
        """[...document.querySelectorAll("input, select, textarea, button, svg[role=img]")].filter(one =>
        !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim())).length"""
    )
    assert nameless == 0
    for landmark in ("main", "header.top", "nav", "section[aria-label=Question]", "[role=status]"):
        assert page.locator(landmark).count() == 1
    page.reload()
    page.wait_for_selector("li[data-id]")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


@pytest.fixture(scope="module")
def ranked(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ranked") / "ranked"
    grls.load(kinds / "dense", device="cpu").hops(max=2, steps="ranked", output=place)
    return place


@pytest.fixture(scope="module")
def alone(ranked: Path) -> Iterator[str]:
    """The address of a server that has ranked hops over a bi-encoder and nothing else."""
    with behind_socket(serving_of({"ranked": ranked})) as one:
        yield one


def test_ranked_hops_show_the_ranking_and_the_way_to_it(page: Any, alone: str, ranked: Path) -> None:
    page.goto(alone)
    page.fill("#k", "4")
    ask(page)
    searcher = grls.load(ranked, device="cpu")
    *_, last = searcher.stream(QUESTION)
    assert ids(page) == [hit.id for hit in searcher.search(QUESTION, 4)]
    assert page.locator("#k").is_visible()
    assert page.text_content(".way h3") == "How it was found"
    assert page.locator(".way .trail-passage").count() == len(last.chain)
    said = page.text_content(".way > .quiet")
    assert "little left to find: 2 hops here" in said
    assert "The ranking above decides" in said
    assert page.locator(".stopped").count() == 0
    assert page.text_content(".timing").startswith("4 passages in ")
    page.click("text=Copy as code")
    assert "/v1/search" in page.text_content("#code-text")


def test_fused_hops_show_the_name_that_led_to_the_first_passage(page: Any, tmp_path: Path) -> None:
    corpus = [
        Passage("novel", "a novel by Ann Bell", "Grey Harbour"),
        Passage("poet", "a poet born in Oslo", "Ann Bell"),
        Passage("other", "a poet of Rome", "Carl Dahl"),
    ]
    words = grls.BM25(corpus)
    fused = grls.fuse([words, words.hops(max=2)], method="sum", weights=[0.9, 0.1], output=tmp_path / "fused")
    question = "which poet born in Oslo wrote Grey Harbour ?"
    first, *_ = fused.search(question)
    assert (first.id, [link.words for link in first.links]) == ("poet", ["Ann Bell"])
    with behind_socket(serving_of({"fused": tmp_path / "fused"})) as one:
        page.goto(one)
        ask(page, question)
        page.wait_for_selector(".way .trail-passage")
        assert page.locator(".way .trail-passage").count() == 2
        assert (
            page.text_content(".way .trail-link >> nth=1") == "names Ann Bellnames Ann Bell"
        )  # and its title
        assert "fusion" in page.text_content(".way > .quiet")


def test_a_page_without_beams_promises_none(page: Any, alone: str, address: str) -> None:
    page.goto(alone)
    assert "beam" not in page.inner_text(".lead")
    assert page.text_content("#retriever option") == "ranked (bi-encoder, 2 ranked hops)"
    ask(page)
    assert page.text_content("#agreement") == ""
    page.goto(address)
    page.wait_for_selector("#lead-beam:not([hidden])")
    assert "beam" in page.inner_text(".lead")


def test_ranked_hops_of_a_generator_keep_the_beam_of_a_hop(page: Any, address: str) -> None:
    page.goto(f"{address}/#q=is+the+otter+kind+%3F&r=generative&steps=ranked&hops=2&k=3")
    page.wait_for_selector("#results[aria-busy=false]")
    assert len(ids(page)) == 3
    page.click(".card-head >> nth=0")
    page.click("text=See the beam")
    page.wait_for_selector(".tree")
    assert page.text_content("#beam h2").startswith("The beam of hop ")


LONG = "otters" * 25
CUT = """() => [...document.querySelectorAll("body *")].filter(one => {
    const texts = [...one.childNodes].filter(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const ranges = texts.map(node => { const of = document.createRange();
        of.selectNode(node); return of; });
    const right = Math.max(...[one, ...ranges].map(each => each.getBoundingClientRect().right));
    if (right <= innerWidth + 1 || !one.checkVisibility()) return false;
    for (let at = one; at && at !== document.body; at = at.parentElement) {
        const style = getComputedStyle(at);
        if (["auto", "scroll"].includes(style.overflowX) || style.textOverflow === "ellipsis") return false;
        if (at.matches(".hidden, svg")) return false;
    }
    return true;
}).map(one => `${one.tagName} ${one.className}: ${one.textContent.slice(0, 60)}`)"""
"""What stands beyond the right edge, outside of a box that scrolls by itself."""


@pytest.fixture(scope="module")
def long_words(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose passages, ids, fields and retriever have long names."""
    texts = [f"kind {LONG} otter {n} {LONG}" for n in range(3)]
    passages = [Passage(f"{LONG}{n}", text, f"{LONG} title") for n, text in enumerate(texts)]
    place = tmp_path_factory.mktemp("long") / "retriever"
    metadata = [{f"name{LONG}": LONG}] * len(passages)
    BM25Retriever(Corpus.from_passages(passages, metadata=metadata)).save_pretrained(place)
    folders = {f"retriever-{LONG[:100]}": place, "hops": kinds / "hops", "generative": kinds / "generative"}
    with behind_socket(serving_of(folders)) as one:
        yield one


@pytest.fixture
def narrow(browser: Any, long_words: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 400, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    one = context.new_page()
    one.goto(long_words)
    one.wait_for_selector("#start:not([hidden])")
    one.evaluate("document.getElementById('options').open = true")
    yield one
    context.close()


def fits(page: Any) -> None:
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def explained(page: Any, place: int) -> Any:
    page.click(f".card-head >> nth={place}")
    card = page.locator(".card").nth(place)
    card.locator(".metadata .data, .metadata :text('No metadata')").wait_for()
    card.locator("text=Why is it here?").click()
    card.locator(".report").wait_for()
    return card


def test_long_words_are_broken(narrow: Any) -> None:
    fits(narrow)
    ask(narrow, f"kind {LONG}")
    fits(narrow)
    report = explained(narrow, 1).locator(".report")
    fits(narrow)
    table = report.locator(".scroll")
    assert table.evaluate("one => one.scrollWidth <= one.clientWidth")
    narrow.fill("#where", f"{LONG}>=")
    narrow.press("#question", "Enter")
    narrow.wait_for_selector("[role=alert]")
    fits(narrow)
    for opener, dialog in (("#code-open", "#code"), ("#key-open", "#key"), ("#help-open", "#help")):
        if narrow.locator(opener).is_visible():
            narrow.click(opener)
            narrow.wait_for_selector(f"{dialog}[open]")
            fits(narrow)
            narrow.keyboard.press("Escape")


def test_an_edge_says_which_name_led_to_a_passage(page: Any, tmp_path: Path) -> None:
    passages = [
        {"id": "film", "title": "Blue Moon Rising", "text": "A film by Anna Kalb."},
        {"id": "woman", "title": "Anna Kalb", "text": "A director."},
        {"id": "other", "title": "Red Sun", "text": "A film."},
    ]
    grls.BM25(passages).hops(output=tmp_path / "hops")
    with behind_socket(serving_of({"hops": tmp_path / "hops"})) as address:
        page.goto(address)
        ask(page, "who directed Blue Moon Rising?")
        edges = page.locator(".trail-link title").all_text_contents()
        assert edges == ["names Blue Moon Rising", "names Anna Kalb"]
        assert "names Anna Kalb. 2: Anna Kalb" in page.get_attribute("svg.trail", "aria-label")
        assert "found by “Anna Kalb” in film" in page.text_content(".card-line >> nth=1")
        page.click(".card-head >> nth=1")
        assert "“Anna Kalb” in film" in page.text_content(".card-more >> nth=1")
        ask(page, "is Blue Moon Rising older, Blue Moon Rising or Red Sun?")
        edges = page.locator(".trail-link title").all_text_contents()
        assert edges == ["names Red Sun", "? names Blue Moon Rising"]
