"""Addresses to listen at: told as they are, and refused in one line before Ray starts."""

import socket

import pytest

from serving.deployments.listening import Listening, listening_at
from serving.errors import AttendantError


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000 and every IPv4 address of this machine (0.0.0.0:8000)"),
        ("::", "http://[::1]:8000 and every address of this machine ([::]:8000)"),
    ],
)
def test_where_it_listens_is_told_with_a_url_that_works(address: str, told: str) -> None:
    listening = Listening(address, 8000)
    assert str(listening) == told
    assert listening.url == told.split()[0]


def test_a_name_becomes_the_address_that_is_listened_at() -> None:
    listening = listening_at("localhost", 0)
    assert listening.address == "127.0.0.1"
    assert listening.port > 0


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("host", "address"), [("::1", "::1"), ("[::1]", "::1"), ("::", "::"), ("0:0::1", "::1")]
)
def test_ipv6(host: str, address: str) -> None:
    assert listening_at(host, 0).address == address


@pytest.mark.parametrize(
    ("taken", "asked", "place"),
    [
        ("127.0.0.1", "localhost", "localhost"),
        ("127.0.0.1", "0.0.0.0", "0.0.0.0"),
        ("0.0.0.0", "127.0.0.1", "127.0.0.1"),
        pytest.param(
            *("127.0.0.1", "::", "[::]"),
            marks=pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6"),
        ),
    ],
)
def test_a_port_that_is_taken(taken: str, asked: str, place: str) -> None:
    with socket.create_server((taken, 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(AttendantError) as caught:
            listening_at(asked, port)
    assert str(caught.value).startswith(f"cannot listen on {place}:{port}: Address already in use")
    assert "--port" in str(caught.value)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 300, "", "[::1", "203.0.113.1"])
def test_no_host_of_this_machine(host: str) -> None:
    with pytest.raises(AttendantError, match=r"^cannot listen on .*:8000: .+") as caught:
        listening_at(host, 8000)
    assert "\n" not in str(caught.value)
