"""Clients that speak TLS: what HAProxy accepts, and a certificate that is renewed while it runs."""

import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from serving.deployments.environment import free_ports
from serving.deployments.haproxy import HAProxy, haproxy
from serving.deployments.haproxy_config import Front, read_certificate
from serving.deployments.listening import Listening
from serving.errors import ConfigError
from serving.server_config import Tls
from tests.certificates import write_certificate
from tests.served import eventually, free_port
from tests.serving.deployments.test_haproxy import NEAR, replica


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    certificate, key = write_certificate(tmp_path / "tls")
    return Tls(certificate=certificate, key=key)


@pytest.fixture
def front(tls: Tls) -> Front:
    public, operations = (Listening("127.0.0.1", free_port()) for _ in range(2))
    *ports, metrics_port = free_ports(2)
    ports_of_replicas = range(ports[0], metrics_port)
    public = replace(public, scheme="https")
    return Front(public, operations, 100, 1, ports_of_replicas, metrics_port, (NEAR,), tls)


@pytest.fixture
def proxy(front: Front, tmp_path: Path) -> Iterator[HAProxy]:
    with replica(front.ports[0], "near-1"), haproxy(front, tmp_path) as proxy:
        proxy.admit()
        url = f"{front.operations.url}/ready"
        assert eventually(lambda: httpx.get(url).status_code == 200)
        yield proxy


def trusting(tls: Tls) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=tls.certificate)


def url_of(front: Front) -> str:
    return f"https://localhost:{front.public.port}"


def test_clients_speak_tls_and_operators_plainly(front: Front, proxy: HAProxy, tls: Tls) -> None:
    assert front.public.url.startswith("https://127.0.0.1:")
    with httpx.Client(verify=trusting(tls)) as client:
        assert client.get(f"{url_of(front)}/x").text == "near-1"
    with pytest.raises(httpx.TransportError):
        httpx.get(url_of(front).replace("https", "http"))
    assert httpx.get(f"{front.operations.url}/health").status_code == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_nothing_older_than_tls_1_2_is_spoken(front: Front, proxy: HAProxy, tls: Tls) -> None:
    for newest, is_served in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)):
        context = trusting(tls)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = newest
        with httpx.Client(verify=context) as client:
            if is_served:
                assert client.get(f"{url_of(front)}/x").status_code == 200
            else:
                with pytest.raises(httpx.ConnectError):
                    client.get(f"{url_of(front)}/x")


def test_a_renewed_certificate_is_taken_over_and_connections_go_on(
    front: Front, proxy: HAProxy, tls: Tls, tmp_path: Path
) -> None:
    proxy.renew_certificate()  # nothing has changed
    with httpx.Client(verify=trusting(tls)) as old:
        assert old.get(f"{url_of(front)}/x").status_code == 200

        write_certificate(tmp_path / "tls")
        proxy.renew_certificate()

        assert old.get(f"{url_of(front)}/x").status_code == 200
        with httpx.Client(verify=trusting(tls)) as new:
            assert new.get(f"{url_of(front)}/x").status_code == 200
    proxy.stop()
    proxy.start()
    with httpx.Client(verify=trusting(tls)) as after_a_restart:
        assert after_a_restart.get(f"{url_of(front)}/health").status_code == 200


def test_a_renewed_certificate_that_is_wrong_changes_nothing(
    front: Front, proxy: HAProxy, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    context = trusting(tls)
    tls.key.write_text("half a key")
    proxy.renew_certificate()
    assert "stays as it was" in caplog.text
    with httpx.Client(verify=context) as client:
        assert client.get(f"{url_of(front)}/x").status_code == 200


def test_files_that_do_not_belong_together_are_named(tls: Tls, tmp_path: Path) -> None:
    other, key = write_certificate(tmp_path / "other")
    with pytest.raises(ConfigError, match="is not the key of"):
        read_certificate(Tls(certificate=tls.certificate, key=key))
    with pytest.raises(ConfigError, match="No such file"):
        read_certificate(Tls(certificate=tls.certificate, key=tmp_path / "none.pem"))
    other.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"certificate\.pem: not a certificate in PEM"):
        read_certificate(Tls(certificate=other, key=key))


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path / "locked", password="secret")
    found: list[BaseException] = []

    def read() -> None:
        try:
            read_certificate(Tls(certificate=certificate, key=key))
        except ConfigError as error:
            found.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(5)
    assert "not a certificate in PEM whose key" in str(found[0])
