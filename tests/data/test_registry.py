"""Fetching, from a local server that misbehaves in the ways real ones do."""

import hashlib
import http.server
import multiprocessing
import os
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from redditbias_repro.data import registry as module
from redditbias_repro.data.registry import ChecksumError, FetchError, fetch, git_blob_sha1

CONTENT = bytes(range(256)) * 1200  # 300 kB, several chunks
KEY, ENTRY = (
    "me/corpus/a b/file.csv",
    {
        "repository": "me/corpus",
        "commit": "c0ffee",
        "path": "a b/file.csv",
        "bytes": str(len(CONTENT)),
        "license": "MIT",
    },
)
ENTRY["git_blob_sha1"] = git_blob_sha1(CONTENT)


class Server(http.server.BaseHTTPRequestHandler):
    """Answers request number i with `behaviour[i]`, the last one from then on."""

    behaviour, requests = ["good"], []

    def do_GET(self):
        how = self.behaviour[min(len(self.requests), len(self.behaviour) - 1)]
        self.requests.append((self.path, self.headers.get("Range")))
        getattr(self, how)()

    def send(self, body, status=200, length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def good(self):
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        if start >= len(CONTENT):
            return self.send(b"", 416)
        self.send(CONTENT[start:], 206 if start else 200)

    def no_ranges(self):
        self.send(CONTENT)

    def truncated(self):
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.send(CONTENT[start : start + 150_000], 206 if start else 200, len(CONTENT) - start)
        self.close_connection = True

    def slow(self):
        time.sleep(1.5)
        self.good()

    def failing(self):
        self.send(b"sorry", 503)

    def refused(self):
        self.send(b"", 403)

    def web_page(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"<html>Please sign in</html>")

    def missing(self):
        self.send(b"", 404)

    def wrong(self):
        self.send(CONTENT[::-1])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A server; `server("truncated", "good")` sets what it does. Its registry holds one file."""
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=http_server.serve_forever, args=[0.01], daemon=True).start()
    monkeypatch.setenv("REDDITBIAS_BASE_URL", f"http://127.0.0.1:{http_server.server_port}")
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path / "cache"))
    for name in ("REDDITBIAS_MIRROR", "REDDITBIAS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_registry", lambda: {KEY: ENTRY})
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda s: time.sleep(s / 10), monotonic=time.monotonic))
    monkeypatch.setattr(module, "_AWAY", {})
    monkeypatch.setattr(module, "_LACKING", {})
    monkeypatch.setattr(Server, "requests", [])

    def behave(*how):
        monkeypatch.setattr(Server, "behaviour", list(how))
        return Server.requests

    yield behave
    http_server.shutdown()


def kept(tmp_path):
    """Files in the cache, lock files left out."""
    return sorted(p.name for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.suffix != ".lock")


def test_blob_id_is_gits():
    assert git_blob_sha1(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert git_blob_sha1(CONTENT) == hashlib.sha1(b"blob 307200\0" + CONTENT).hexdigest()


def test_good(server, tmp_path):
    requests = server("good")
    path = fetch(KEY)
    assert path.read_bytes() == CONTENT and path.parts[-5:] == ("me", "corpus", "c0ffee", "a b", "file.csv")
    assert fetch(KEY) == path and len(requests) == 1 and requests[0][0] == "/me/corpus/c0ffee/a%20b/file.csv"
    assert kept(tmp_path) == ["file.csv"]


def test_a_damaged_cache_is_fetched_anew(server):
    server("good")
    fetch(KEY).write_bytes(b"damaged")
    assert fetch(KEY).read_bytes() == CONTENT


@pytest.mark.parametrize("how", [("failing", "good"), ("slow", "good")])
def test_retries(server, monkeypatch, how):
    requests = server(*how)
    monkeypatch.setattr(module, "PIECE", 0.5)
    assert fetch(KEY).read_bytes() == CONTENT and len(requests) == 2


def test_a_truncated_download_goes_on_where_it_stopped(server):
    requests = server("truncated", "good")
    assert fetch(KEY).read_bytes() == CONTENT
    assert [r for _, r in requests] == [None, f"bytes={150_000 // module.CHUNK * module.CHUNK}-"]


def test_a_server_without_ranges_starts_anew(server):
    requests = server("truncated", "no_ranges")
    assert fetch(KEY).read_bytes() == CONTENT and len(requests) == 2


def test_what_was_received_is_kept_for_the_next_call(server, tmp_path):
    server("truncated", "missing")
    with pytest.raises(FetchError):
        fetch(KEY)
    assert kept(tmp_path) == ["file.csv.part"]
    requests = server("good")
    requests.clear()
    assert fetch(KEY).read_bytes() == CONTENT and requests[0][1] == f"bytes={150_000 // module.CHUNK * module.CHUNK}-"
    assert kept(tmp_path) == ["file.csv"]


def test_a_stale_part_is_started_anew(server, tmp_path):
    part = tmp_path / "cache" / "corpora" / "me" / "corpus" / "c0ffee" / "a b" / "file.csv.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"of another time")
    requests = server("good")
    assert fetch(KEY).read_bytes() == CONTENT and [r for _, r in requests] == ["bytes=15-", None]
    assert kept(tmp_path) == ["file.csv"]


def test_a_whole_part_is_used(server, tmp_path):
    part = tmp_path / "cache" / "corpora" / "me" / "corpus" / "c0ffee" / "a b" / "file.csv.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT)
    server("good")
    assert fetch(KEY).read_bytes() == CONTENT


def test_wrong_content(server, tmp_path):
    server("wrong")
    with pytest.raises(ChecksumError) as e:
        fetch(KEY)
    assert all(s in str(e.value) for s in (KEY, git_blob_sha1(CONTENT), git_blob_sha1(CONTENT[::-1]), "try again"))
    assert kept(tmp_path) == []


def test_missing_file_is_not_retried(server, tmp_path):
    requests = server("missing")
    with pytest.raises(FetchError, match="404"):
        fetch(KEY)
    assert len(requests) == 1 and kept(tmp_path) == []


@pytest.mark.parametrize("how", ["failing", "slow"])
def test_failing_for_good(server, tmp_path, monkeypatch, how):
    requests = server(how)
    monkeypatch.setattr(module, "PIECE", 0.3)
    monkeypatch.setattr(module, "TRIES", 2)
    with pytest.raises(FetchError, match="in 2 tries .*REDDITBIAS_MIRROR") as e:
        fetch(KEY)
    assert kept(tmp_path) == [] and "received" not in str(e.value)
    with pytest.raises(FetchError, match="does not answer"):
        fetch(KEY)
    assert len(requests) == 2  # the next file does not wait as long


@pytest.mark.parametrize(
    "how, said", [("refused", "HTTP 403: refused"), ("web_page", "a web page instead of the file")]
)
def test_a_proxy_that_answers_in_place_of_the_host(server, tmp_path, how, said):
    requests = server(how)
    for _ in range(2):
        with pytest.raises(FetchError, match=f"does not answer .{said}") as e:
            fetch(KEY)
        assert not isinstance(e.value, ChecksumError)  # so that what stands in can
    assert len(requests) == 1 and kept(tmp_path) == []


def test_what_a_mirror_lacks_is_said(server, monkeypatch, tmp_path):
    server("missing")
    monkeypatch.setenv("REDDITBIAS_MIRROR", str(tmp_path))
    with pytest.raises(FetchError, match="REDDITBIAS_MIRROR=.* does not have it"):
        fetch(KEY)
    monkeypatch.setenv("REDDITBIAS_MIRROR", str(tmp_path / "none"))
    with pytest.raises(FetchError, match="REDDITBIAS_MIRROR=.*none is not a folder"):
        fetch(KEY)


def test_a_host_that_does_not_answer_is_asked_once(server, monkeypatch, tmp_path):
    asked = []
    getaddrinfo = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: asked.append(a) or getaddrinfo(*a, **k))
    with socket.socket() as s:  # a port where nobody listens
        s.bind(("127.0.0.1", 0))
        monkeypatch.setenv("REDDITBIAS_BASE_URL", f"http://127.0.0.1:{s.getsockname()[1]}")
        for _ in range(3):
            with pytest.raises(
                FetchError, match="file.csv is not available: .*does not answer .connection refused."
            ) as e:
                fetch(KEY)
            assert len(str(e.value)) < 200 and "REDDITBIAS_MIRROR" in str(e.value)
        assert len(asked) == 1 and set(module.unavailable()) == {KEY}
        monkeypatch.setattr(module, "STILL_AWAY", 0.0)
        with pytest.raises(FetchError, match="does not answer|could not be fetched"):
            fetch(KEY)
        assert len(asked) == 2  # minutes later it is asked again
    assert kept(tmp_path) == []


@pytest.mark.parametrize("base", ["nonsense", "http://", "ftp://x", "https://x:port", "https://[x"])
def test_an_address_that_is_none_is_said_at_once(server, monkeypatch, base):
    monkeypatch.setenv("REDDITBIAS_BASE_URL", base)
    monkeypatch.setattr(module, "_download", None)  # nobody is asked
    with pytest.raises(ValueError) as e:
        fetch(KEY)
    assert f"REDDITBIAS_BASE_URL is {base!r}: expected an address such as https://raw" in str(e.value)


def test_offline_no_host_is_asked(server, monkeypatch):
    requests = server("good")
    monkeypatch.setenv("REDDITBIAS_OFFLINE", "1")
    with pytest.raises(FetchError, match="REDDITBIAS_OFFLINE is set"):
        fetch(KEY)
    assert not requests and set(module.unavailable()) == {KEY}
    monkeypatch.setenv("REDDITBIAS_OFFLINE", "no")
    assert fetch(KEY).read_bytes() == CONTENT


def test_another_list_of_files(monkeypatch, tmp_path):
    sources = tmp_path / "sources.tsv"
    sources.write_text("\t".join(ENTRY) + "\n" + "\t".join(ENTRY.values()) + "\n", encoding="utf-8")
    monkeypatch.setenv("REDDITBIAS_SOURCES", str(sources))
    assert module.list_files().key.tolist() == [KEY]
    monkeypatch.setenv("REDDITBIAS_SOURCES", str(tmp_path / "none.tsv"))
    with pytest.raises(FileNotFoundError, match="REDDITBIAS_SOURCES=.*none.tsv: no such file"):
        module.list_files()
    monkeypatch.delenv("REDDITBIAS_SOURCES")
    assert len(module.list_files()) > 100


def test_unknown_key(server):
    with pytest.raises(KeyError, match="did you mean 'me/corpus/a b/file.csv'"):
        fetch("me/corpus/a b/fil.csv")


def test_mirror(server, monkeypatch, tmp_path):
    requests = server("good")
    file = tmp_path / "mirror" / "me/corpus/c0ffee/a b/file.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    monkeypatch.setenv("REDDITBIAS_MIRROR", str(tmp_path / "mirror"))
    assert fetch(KEY).read_bytes() == CONTENT and requests == []
    fetch(KEY).unlink()
    file.write_bytes(b"changed")
    with pytest.raises(ChecksumError, match="from the mirror"):
        fetch(KEY)
    file.unlink()
    assert fetch(KEY).read_bytes() == CONTENT and len(requests) == 1


def _fetch_in_process(results, registry):
    module._registry = lambda: registry
    results.put(hashlib.sha256(fetch(KEY).read_bytes()).hexdigest())


def test_several_processes_at_once(server):
    requests = server("slow")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_fetch_in_process, args=(results, {KEY: ENTRY})) for _ in range(4)]
    for p in processes:
        p.start()
    got = [results.get(timeout=60) for _ in processes]
    for p in processes:
        p.join()
    assert set(got) == {hashlib.sha256(CONTENT).hexdigest()} and len(requests) == 1


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path))
    assert module.cache_dir() == tmp_path
    monkeypatch.delenv("REDDITBIAS_CACHE")
    assert module.cache_dir().name == "redditbias_repro" and os.path.isabs(module.cache_dir())
