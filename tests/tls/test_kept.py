"""Processes and runs that begin while TLS files are bad, or when a certificate's time is over."""
from __future__ import annotations

import errno
import os
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from mqcore.net.secured import native_context
from mqcore.net.transport.tls_context import TlsContextError
from mqcore.tls.contexts import TlsFileError
from mqcore.tls.renewed import RETRY_MS, Renewed
from mqcore.tls.settings import SERVER_FILES, TlsServerSettings, TlsSettings, expanded
from mqcore.wire.codes import RequestCode as Code
from mqcore.workers.process.secured import KeptTls, check_beside
from mqcore.workers.process.signals import AGAIN
from tests.broker.fakes import settings_in
from tests.support.mqcore_process import (
    MqcoreError,
    MqcoreProcess,
    mqcore_namesrv,
    mqcore_up,
)
from tests.support.stepping_clock import SteppingClock
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority, careless
from tests.tls.test_files import replace_file, shown_by
from tests.wire_live.peer import Closed, Peer
from tests.workers.processes import kill, pid_of

Says = Callable[[MqcoreProcess, str], None]
SERVERS = {"pull-serving-0": "broker_addr", "namesrv": "namesrv_addr"}
TWO_DAYS_S = 2 * 86_400


def is_shown(address: str, context: ssl.SSLContext, name: str) -> bool:
    try:
        return shown_by(address, context) == name
    except (OSError, Closed):
        return False


def is_back(broker: MqcoreProcess, role: str, context: ssl.SSLContext, name: str) -> None:
    """Kill a process; its successor shows the certificate `name`, if it shows any."""
    before = kill(broker, role)
    wait_until(lambda: pid_of(broker, role) != before, f"a successor of {role}")
    if role in SERVERS:
        address = getattr(broker, SERVERS[role])
        wait_until(lambda: is_shown(address, context, name), f"{role} serves TLS again")


@pytest.fixture
def pair(authority: Authority, folder: Path) -> tuple[Path, Path]:
    """Certificate and key that can be replaced; the first is of `first`."""
    certificate, key = folder / "served.pem", folder / "served.key"
    for source, target in zip(authority.sign("first"), (certificate, key), strict=True):
        shutil.copy(source, target)
    return certificate, key


def test_processes_that_start_while_files_are_bad_go_on_with_those_before(
    authority: Authority, client: ssl.SSLContext, folder: Path, says: Says,
    pair: tuple[Path, Path],
) -> None:
    certificate, key = pair
    with mqcore_up(folder / "broker", {
            "tls.certificate": certificate, "tls.key": key, "tls.poll_ms": 50,
            "tls.client_enable": True, "tls.client_trust": authority.certificate,
            "processes.serving_count": 1}) as running:
        for source, target in zip(authority.sign("second"), (certificate, key), strict=True):
            replace_file(source, target)
        says(running, "TLS: processes that start anew get what the files say now")
        certificate.write_text("no certificate")
        key.unlink()
        for role in (*SERVERS, "coordinator"):
            is_back(running, role, client, "second")
        said = running.output.read_text()
        assert "ends by an error" not in said
        assert f"TLS keeps the files that it has: {key}: cannot be read" in said
        for source, target in zip(authority.sign("third"), (certificate, key), strict=True):
            replace_file(source, target)
        for name in SERVERS.values():
            address = getattr(running, name)
            wait_until(lambda at=address: is_shown(at, client, "third"), "the mended files")


def test_processes_that_start_after_the_certificates_time_go_on_with_it(
    folder: Path, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients that look at it go away; the broker itself knows its name server by the file."""
    certificate, key = pair
    clock = SteppingClock.create(folder / "clock")
    with clock.worn(monkeypatch), mqcore_up(folder / "broker", {
            "tls.mode": "enforcing", "tls.certificate": certificate, "tls.key": key,
            "tls.poll_ms": 50, "processes.serving_count": 1}) as running:
        clock.ahead_s = TWO_DAYS_S + 3_600
        for role in (*SERVERS, "coordinator"):
            before = kill(running, role)
            wait_until(lambda one=role, old=before: pid_of(running, one) != old,
                       f"a successor of {role}")
        for address in (running.broker_addr, running.namesrv_addr):
            wait_until(lambda at=address: is_open(at), f"{address} serves TLS again")
        assert "expected a certificate that has not expired" in running.output.read_text()
        wait_until(lambda: is_registered(running), "the broker is registered again")


def test_a_run_that_begins_anew_while_files_are_bad_does_not_end_the_broker(
    client: ssl.SSLContext, folder: Path, pair: tuple[Path, Path],
) -> None:
    certificate, key = pair
    with mqcore_up(folder / "broker", {
            "tls.certificate": certificate, "tls.key": key, "processes.serving_count": 1,
    }) as running:
        certificate.write_text("no certificate")
        os.kill(running.pid, AGAIN)
        wait_until(lambda: running.output.read_text().count("mqcore ready") == 2, "the next run")
        for address in (running.broker_addr, running.namesrv_addr):
            wait_until(lambda at=address: is_shown(at, client, "first"), "TLS as before")


def test_a_later_run_begins_with_what_the_one_before_had(
    folder: Path, pair: tuple[Path, Path],
) -> None:
    certificate, key = pair
    good = certificate.read_bytes()
    tls = expanded(TlsSettings(certificate=str(certificate), key=str(key), poll_ms=1))
    settings = replace(settings_in(folder), tls=tls)
    kept = KeptTls()
    certificate.write_text("no certificate")
    with pytest.raises(TlsContextError, match=f"^{certificate}: expected a PEM file"):
        kept.begin(settings, embedded=True)
    assert kept.settings is None
    certificate.write_bytes(good)
    assert kept.begin(settings, embedded=True).tls == tls
    certificate.unlink()
    assert kept.begin(settings, embedded=True).tls == tls
    assert kept.settings is not None
    assert Path(kept.settings.certificate).read_bytes() == good
    native_context(kept.settings)


def test_what_cannot_be_kept_is_told_by_its_own_name(
    authority: Authority, folder: Path, pair: tuple[Path, Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificate, key = pair
    tls = expanded(TlsSettings(certificate=str(certificate), key=str(key), poll_ms=1))
    kept = KeptTls()
    kept.begin(replace(settings_in(folder), tls=tls), embedded=True)
    shutil.copy(authority.sign("other")[1], key)
    for now_ms in (1_000_000, 1_001_000):
        kept.look(now_ms)
    assert (f"{key}: expected a PEM file with the private key of the certificate {certificate}, "
            in caplog.text)
    assert "/proc/self/fd" not in caplog.text


def test_files_that_nobody_reads_are_not_asked_for(
    folder: Path, pair: tuple[Path, Path], caplog: pytest.LogCaptureFixture,
) -> None:
    """A tls.properties of stock's names those of clients, too, whether TLS is on there or not."""
    certificate, key = map(str, pair)
    away = str(folder / "away.pem")
    for tls in (TlsSettings(mode="disabled", certificate=away, trust=away),
                TlsSettings(certificate=certificate, key=key, client_certificate=away,
                            client_trust=away)):
        kept = KeptTls()
        kept.begin(replace(settings_in(folder), tls=expanded(tls)), embedded=True)
        assert kept.settings is not None
        assert kept.settings.trust == tls.trust
    assert caplog.text == ""
    with pytest.raises(TlsFileError, match=f"^{away}"):
        KeptTls().begin(replace(settings_in(folder), tls=expanded(TlsSettings(
            client_enable=True, client_certificate=away))), embedded=True)


def test_a_start_lives_where_nothing_can_be_kept(
    folder: Path, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_name: str, _flags: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "memfd_create", refuse)
    certificate, key = map(str, pair)
    tls = expanded(TlsSettings(certificate=certificate, key=key))
    kept = KeptTls()
    assert kept.begin(replace(settings_in(folder), tls=tls), embedded=True).tls == tls
    assert kept.settings is None
    kept.look(1_000_000)
    assert "TLS files cannot be kept for processes that start anew" in caplog.text


def test_a_certificate_whose_time_is_over_is_refused_wherever_it_is_read(
    authority: Authority,
) -> None:
    certificate, key = authority.sign_expired("over")
    tls = expanded(TlsServerSettings(certificate=str(certificate), key=str(key)))
    with pytest.raises(TlsContextError, match="expected a certificate that has not expired"):
        native_context(tls)
    assert native_context(tls, any_time=True) is not None


def test_a_name_server_goes_on_with_its_certificate_when_the_new_one_has_expired(
    authority: Authority, client: ssl.SSLContext, folder: Path, says: Says,
    pair: tuple[Path, Path],
) -> None:
    certificate, key = pair
    with mqcore_namesrv(folder / "namesrv", {
            "tls.certificate": certificate, "tls.key": key, "tls.poll_ms": 50}) as running:
        for source, target in zip(authority.sign_expired("over"), (certificate, key), strict=True):
            replace_file(source, target)
        says(running, f"TLS keeps the files that it has: {certificate}: expected a "
                      "certificate that has not expired")
        assert shown_by(running.namesrv_addr, client) == "first"


def test_a_file_that_could_not_be_read_for_a_moment_is_read_later(folder: Path) -> None:
    """There was no descriptor left; the file does not change again."""
    file = folder / "certificate"
    file.write_text("one")
    tls = TlsServerSettings(certificate=str(file), poll_ms=1)
    taken: list[str] = []
    failing: list[OSError] = []

    def read(tls: TlsServerSettings) -> str:
        if failing:
            raise failing[0]
        return Path(tls.certificate).read_text()

    renewed = Renewed(tls, SERVER_FILES, read, taken.append)
    file.write_text("number two")
    failing.append(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    for now_ms in (10, 20, 30):
        renewed.look(now_ms)
    failing.clear()
    renewed.look(40)
    assert taken == ["one"]
    renewed.look(20 + RETRY_MS)
    assert taken == ["one", "number two"]


# -- the name server beside a broker ---------------------------------------------------------------


def test_a_broker_shows_its_own_certificate_to_the_name_server_beside_it(
    authority: Authority, folder: Path, served: dict[str, object],
) -> None:
    with mqcore_up(folder, {
            **served, "tls.mode": "enforcing", "tls.client_auth": "require",
            "tls.trust": authority.certificate}) as running:
        shown = authority.client(authority.sign("client"))
        wait_until(lambda: is_registered(running, shown), "the broker is registered")


def test_who_would_let_the_broker_in_is_told_from_who_would_not(
    authority: Authority, folder: Path, served: dict[str, object],
) -> None:
    """Where nobody has to show a certificate, none is shown."""
    stranger = Authority(folder / "stranger", "stranger")
    certificate, key = map(str, stranger.sign("client"))
    tls = expanded(TlsSettings(
        mode="enforcing", certificate=str(served["tls.certificate"]), key=str(served["tls.key"]),
        client_auth="require", trust=str(stranger.certificate)))
    with pytest.raises(TlsFileError, match=r"expected a certificate that tls\.trust signed"):
        check_beside(tls)
    for good in (replace(tls, client_auth="optional"), replace(tls, mode="permissive"),
                 replace(tls, trust=str(authority.certificate)),
                 replace(tls, client_certificate=certificate, client_key=key)):
        check_beside(good)


def test_a_start_whose_name_server_would_not_let_it_in_ends_with_one_line(
    folder: Path, served: dict[str, object],
) -> None:
    stranger = Authority(folder / "stranger", "stranger")
    with pytest.raises(MqcoreError) as error, mqcore_up(folder, {
            **served, "tls.mode": "enforcing", "tls.client_auth": "require",
            "tls.trust": stranger.certificate}):
        pytest.fail("it has started")
    (line,) = [one for one in str(error.value).splitlines() if one.startswith("mqcore: ")]
    assert f"{served['tls.certificate']}: expected a certificate that tls.trust signed" in line
    assert "certificate verify failed" in line


def is_open(address: str) -> bool:
    try:
        with Peer(address, tls=careless()) as peer:
            return peer.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}).code in (3, 17)
    except (OSError, Closed):
        return False


def is_registered(broker: MqcoreProcess, context: ssl.SSLContext | None = None) -> bool:
    try:
        with Peer(broker.namesrv_addr, tls=context or careless()) as peer:
            return broker.broker_addr.encode() in peer.ask(Code.GET_BROKER_CLUSTER_INFO).body
    except (OSError, Closed):
        return False
