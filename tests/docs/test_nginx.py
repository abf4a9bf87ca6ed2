"""The example for nginx stands once, and nothing in it is narrower than the server behind it."""

import re

from serving.server_config import ServerConfig, WorkerGroup
from tests.docs.pages import ROOT, all_pages, quoted

PAGES = {page.name: page.read_text(encoding="utf-8") for page in all_pages()}
[EXAMPLE] = [block for text in PAGES.values() for block in quoted(text, "nginx")]
DIRECTIVES = dict(re.findall(r"^\s*(\w+)\s+([^;{]+);", EXAMPLE, re.MULTILINE))
HEADERS = dict(re.findall(r"proxy_set_header\s+(\S+)\s+(\S+);", EXAMPLE))


def test_there_is_one_example() -> None:
    assert sum(text.count("proxy_pass") for text in PAGES.values()) == 2  # and a line below a path
    assert [name for name, text in PAGES.items() if "proxy_pass" in text] == ["serving.md"]


def test_the_server_knows_what_its_clients_called_it() -> None:
    assert HEADERS["Host"] == HEADERS["X-Forwarded-Host"] == "$host"
    assert HEADERS["X-Forwarded-Proto"] == "$scheme"
    assert HEADERS["X-Forwarded-For"] == "$remote_addr"


def test_only_the_server_limits_bodies() -> None:
    """A document of `max_mib` has a form around it, and a memory may be much larger."""
    assert DIRECTIVES["client_max_body_size"] == "0"
    assert DIRECTIVES["proxy_request_buffering"] == "off"


def test_streams_are_not_held_back_and_only_the_server_has_deadlines() -> None:
    assert DIRECTIVES["proxy_buffering"] == "off"
    assert DIRECTIVES["proxy_http_version"] == "1.1"
    haproxy = (ROOT / "serving/deployments/haproxy.cfg").read_text(encoding="utf-8")
    [hours] = re.findall(r"timeout server (\d+)h", haproxy)
    for name in ("proxy_read_timeout", "proxy_send_timeout"):
        seconds = int(DIRECTIVES[name].removesuffix("s"))
        assert seconds == int(hours) * 3600
        assert seconds > WorkerGroup.model_fields["timeout_seconds"].default


def test_it_passes_to_the_port_of_the_server() -> None:
    port = ServerConfig.model_fields["port"].default
    assert DIRECTIVES["proxy_pass"] == f"http://127.0.0.1:{port}"
