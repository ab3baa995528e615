"""Certificates, keys and authorities: what is taken, what is refused and how, what comes later."""
from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.broker.settings.load import load
from mqcore.namesrv.settings import load as load_namesrv
from mqcore.net.transport.tls_context import TlsContext, TlsContextError, self_signed
from mqcore.tls import stock
from mqcore.tls.contexts import TlsFileError, client_context, server_context
from mqcore.tls.settings import TlsServerSettings, TlsSettings, expanded
from mqcore.wire.codes import RequestCode
from mqcore.workers.process.secured import prepared
from tests.support.mqcore_process import MqcoreError, MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority, require_openssl
from tests.wire_live.peer import Peer

Says = Callable[[MqcoreProcess, str], None]
SECRET = "a secret, 1 äö"
RSA = ("rsa:2048",)


@pytest.fixture(scope="module")
def files(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Good and bad ones by name."""
    folder = tmp_path_factory.mktemp("files")
    certificate, key = authority.sign("server")
    rsa, rsa_key = authority.sign("rsa", key=RSA)
    locked, locked_key = authority.sign("locked", password=SECRET)
    found = {"certificate": certificate, "key": key, "rsa": rsa, "rsa_key": rsa_key,
             "locked": locked, "locked_key": locked_key, "trust": authority.certificate}
    for name, content in (
            ("nonsense", b"\0\1\2 no PEM at all"), ("empty", b""),
            ("cut", certificate.read_bytes()[:200]), ("expired", self_signed("old", -1)),
            ("both", certificate.read_bytes() + key.read_bytes()),
            ("password", f"{SECRET}\n".encode())):
        found[name] = folder / name
        found[name].write_bytes(content)
    return found | {"absent": folder / "absent"}


@pytest.mark.parametrize(("certificate", "key", "password", "expected"), [
    ("absent", "key", "", r"absent: cannot be read: No such file.*; expected a PEM file with the "
                          "server's certificate"),
    ("nonsense", "key", "", "nonsense: expected a PEM file with the server's certificate"),
    ("empty", "key", "", "empty: expected a PEM file with the server's certificate"),
    ("cut", "key", "", "cut: expected a PEM file with the server's certificate"),
    ("key", "key", "", "server.key: expected a PEM file with the server's certificate"),
    ("expired", "expired", "", "expired: expected a certificate that has not expired"),
    ("certificate", "absent", "", "absent: cannot be read: No such file"),
    ("certificate", "nonsense", "", "nonsense: expected a PEM file with the private key"),
    ("certificate", "rsa_key", "", r"rsa\.key: expected (?:a PEM file with )?the private key"),
    ("locked", "locked_key", "", r"locked\.key: expected a PEM file with the private key of the "
                                 "certificate .*its password if it is encrypted"),
    ("locked", "locked_key", "wrong", r"locked\.key: expected a PEM file with the private key"),
    ("locked", "locked_key", "x" * 2000, r"locked\.key: expected a PEM file with the private key"),
])
def test_a_file_that_cannot_be_used_is_named_with_what_was_expected(
    files: dict[str, Path], certificate: str, key: str, password: str, expected: str,
) -> None:
    with pytest.raises(TlsContextError, match=expected) as error:
        TlsContext(certificate=str(files[certificate]), key=str(files[key]), password=password)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("trust", ["absent", "nonsense", "empty", "key"])
def test_a_trust_file_that_cannot_be_used_is_named(files: dict[str, Path], trust: str) -> None:
    expected = f"{files[trust].name}: .*expected a PEM file with the certificates of authorities"
    with pytest.raises(TlsContextError, match=expected):
        TlsContext(certificate=str(files["certificate"]), key=str(files["key"]),
                   trust=str(files[trust]), clients="require")
    with pytest.raises(TlsFileError, match=f"{files[trust].name}: "):
        client_context(TlsSettings(client_enable=True, client_trust=str(files[trust])))


def test_good_files_are_taken_in_every_form(files: dict[str, Path]) -> None:
    for certificate, key, password in (
            ("certificate", "key", ""), ("rsa", "rsa_key", ""), ("both", "both", ""),
            ("locked", "locked_key", SECRET)):
        TlsContext(certificate=str(files[certificate]), key=str(files[key]), password=password,
                   trust=str(files["trust"]), clients="optional")
    tls = expanded(TlsSettings(certificate=str(files["locked"]), key=str(files["locked_key"]),
                               key_password_file=str(files["password"])))
    assert prepared(tls) == tls
    assert isinstance(server_context(tls), ssl.SSLContext)


def test_runs_of_one_process_share_a_test_certificate_that_no_program_inherits() -> None:
    first, again = (prepared(TlsSettings(test_mode=True)) for _ in range(2))
    assert first == again
    assert not os.get_inheritable(int(Path(first.certificate).name))


def test_a_key_in_the_certificates_file_needs_no_setting(files: dict[str, Path]) -> None:
    tls = expanded(TlsSettings(certificate=str(files["both"])))
    assert tls.key == str(files["both"])
    assert prepared(tls) == tls


@pytest.mark.parametrize(("settings", "expected"), [
    ({"tls.certificate": "absent"}, "absent: cannot be read: No such file or directory; expected"),
    ({"tls.certificate": "both", "tls.client_auth": "require"},
     'tls.client_auth = "require": expected "none", since tls.trust is not set'),
    ({"tls.mode": "enforcing"}, 'tls.mode = "enforcing": expected "permissive" or "disabled"'),
    ({"tls.client_enable": True, "tls.client_trust": "nonsense"}, "nonsense: "),
], ids=["certificate", "trust", "mode", "outgoing"])
def test_a_start_with_a_bad_file_ends_with_one_line(
    files: dict[str, Path], folder: Path, settings: dict[str, object], expected: str,
) -> None:
    given = {key: files.get(str(value), value) for key, value in settings.items()}
    with pytest.raises(MqcoreError) as error, mqcore_up(folder, given):
        pass
    (line,) = [one for one in str(error.value).splitlines() if one.startswith("mqcore: ")]
    assert expected in line


def test_the_set_up_in_the_documents_works_as_it_stands(folder: Path) -> None:
    require_openssl()
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    document = text.partition("## TLS")[2]
    commands, toml = (re.findall(rf"^```{kind}\n(.*?)^```$", document, re.M | re.S)[0]
                      for kind in ("sh", "toml"))
    subprocess.run(["sh", "-ec", commands], cwd=folder, check=True, capture_output=True, timeout=60)
    given = {f"tls.{key}": value if key == "mode" else str(folder / value)
             for key, value in tomllib.loads(toml)["tls"].items()}
    client = ssl.create_default_context(cafile=folder / "authority.pem")
    with mqcore_up(folder / "broker", given) as running, Peer(
            running.broker_addr, tls=client) as peer:
        assert peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}).code in (3, 17)


def test_without_openssl_a_start_says_what_was_looked_for(files: dict[str, Path]) -> None:
    program = ("import sys, mqcore.tls.library as library\n"
               "library.candidates = lambda: ['libnothing.so', '']\n"
               "from mqcore.net.transport.tls_context import TlsContext\n"
               "try: TlsContext(certificate=sys.argv[1], key=sys.argv[2])\n"
               "except OSError as error: print(error)\n")
    said = subprocess.run([sys.executable, "-c", program, files["certificate"], files["key"]],
                          capture_output=True, text=True, check=True, timeout=60).stdout
    assert re.fullmatch(
        r"TLS needs OpenSSL 1\.1\.1 or 3\.x \(libssl\), and none can be used here: "
        r"libnothing\.so \(not there\), the interpreter itself \(has no \w+\)\n", said)


# -- certificates of clients -----------------------------------------------------------------------


def test_clients_that_have_to_show_a_certificate_are_verified(
    authority: Authority, served: dict[str, object], folder: Path, says: Says,
) -> None:
    stranger = Authority(folder / "stranger", "stranger")
    ours, foreign = authority.sign("client"), stranger.sign("client")
    own, key = ours
    with mqcore_up(folder / "broker", {
            **served, "tls.client_auth": "require", "tls.trust": authority.certificate,
            "tls.client_enable": True, "tls.client_trust": authority.certificate,
            "tls.client_certificate": own, "tls.client_key": key}) as running:
        for address in (running.broker_addr, running.namesrv_addr):
            with Peer(address, tls=authority.client(ours)) as peer:
                assert peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}).code in (3, 17)
            for shown in (None, foreign):
                with pytest.raises((OSError, AssertionError)), Peer(
                        address, tls=authority.client(shown)) as peer:
                    peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"})
        says(running, "TLS failed: peer did not return a certificate")
        says(running, "TLS failed: certificate verify failed")


# -- renewal ---------------------------------------------------------------------------------------


def shown_by(address: str, context: ssl.SSLContext) -> str:
    """The common name of the certificate that a new connection is shown."""
    with Peer(address, tls=context) as peer:
        assert isinstance(peer.socket, ssl.SSLSocket)
        subject = (peer.socket.getpeercert() or {})["subject"]
    return dict(pair for entry in subject for pair in entry)["commonName"]


def replace_file(source: Path, target: Path) -> None:
    beside = target.with_suffix(".new")
    shutil.copy(source, beside)
    os.replace(beside, target)


def test_new_files_hold_for_new_connections_and_bad_ones_not_at_all(
    authority: Authority, client: ssl.SSLContext, folder: Path, says: Says,
) -> None:
    first, first_key = authority.sign("first")
    second, second_key = authority.sign("second")
    certificate, key = folder / "served.pem", folder / "served.key"
    shutil.copy(first, certificate)
    shutil.copy(first_key, key)
    with mqcore_up(folder / "broker", {
            "tls.certificate": certificate, "tls.key": key, "tls.poll_ms": 50}) as running:
        addresses = (running.broker_addr, running.namesrv_addr)
        with Peer(running.broker_addr, tls=client) as old:
            assert [shown_by(one, client) for one in addresses] == ["first", "first"]

            certificate.write_text("no certificate")
            says(running, f"TLS keeps the files that it has: {certificate}: expected")
            assert shown_by(running.broker_addr, client) == "first"

            replace_file(second, certificate)
            replace_file(second_key, key)
            for address in addresses:
                wait_until(lambda at=address: shown_by(at, client) == "second", "the new one", 40)
            assert old.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}).code in (3, 17)


def test_stock_files_say_what_is_served(
    authority: Authority, folder: Path,
) -> None:
    certificate, key = authority.sign("server")
    properties = folder / "tls.properties"
    properties.write_text(
        f"tls.test.mode.enable=false\ntls.server.certPath={certificate}\n"
        f"tls.server.keyPath={key}\ntls.server.need.client.auth=optional\n"
        "tls.server.mode=enforcing\ntls.client.authServer=true\n")
    conf = folder / "broker.conf"
    conf.write_text(f"brokerName=a\ntls.config.file={properties}\ntls.server.mode=permissive\n"
                    "tls.server.certPath=/nowhere\ntls.enable=true\n")

    tls = load(conf, {}).tls
    assert (tls.mode, tls.certificate, tls.key) == ("permissive", str(certificate), str(key))
    assert (tls.client_auth, tls.verify_client) == ("optional", False)
    assert (tls.client_enable, tls.client_verify, tls.client_verify_host) == (True, True, False)
    conf.write_text(f"listenPort=9999\ntls.config.file={properties}\n")
    served, ignored = load_namesrv(conf)
    assert (served.tls.certificate, served.tls.mode, ignored) == (
        str(certificate), "permissive", [])
    conf.write_text(f"tls.server.mode=enforcing\ntls.config.file={properties}\n")
    assert load(conf, {}).tls.client_enable is True
    conf.write_text("tls.config.file=/nowhere/tls.properties\n")
    with pytest.raises(ValueError, match=r"/nowhere/tls.properties: not there; expected"):
        load(conf, {})


@pytest.mark.parametrize("form", ["{}={}", "{}: {}", "{} {}", " {}\\\n  = {}"])
def test_brokers_and_name_servers_read_stocks_properties_alike(
    files: dict[str, Path], folder: Path, form: str,
) -> None:
    """Whatever of Java's forms they have: a line that says nothing would be no TLS."""
    properties, conf = folder / "tls.properties", folder / "stock.conf"
    properties.write_text("# for both\n" + "".join(f"{form.format(key, text)}\n" for key, text in (
        ("tls.server.certPath", files["certificate"]), ("tls.server.keyPath", files["key"]))))
    conf.write_text(f"tls.config.file={properties}\n")
    expected = (str(files["certificate"]), str(files["key"]))
    for tls in (load(conf, {}).tls, load_namesrv(conf)[0].tls):
        assert (tls.certificate, tls.key) == expected


def test_a_default_file_that_cannot_be_read_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It might have said that TLS is served; that it is not there is as good as nothing in it."""
    conf = folder / "stock.conf"
    conf.write_text("listenPort=9999\n")
    for absent in (folder / "absent", conf / "below a file"):
        monkeypatch.setattr(stock, "FILE_DEFAULT", str(absent))
        assert load_namesrv(conf)[0].tls == TlsServerSettings()
        assert load(conf, {}).tls == TlsSettings()
    monkeypatch.setattr(stock, "FILE_DEFAULT", str(folder))
    for read in (load_namesrv, lambda path: load(path, {})):
        with pytest.raises(ValueError, match=r"cannot be read: .*Is a directory") as error:
            read(conf)
        assert f"{folder}: " in str(error.value)
        assert "tls.config.file names another file" in str(error.value)
        assert "\n" not in str(error.value)


def test_any_certificate_will_do_where_nobody_verifies(files: dict[str, Path]) -> None:
    """As stock's tls.server.authClient = false; a name server on asyncio asks for none then."""
    tls = TlsServerSettings(certificate=str(files["certificate"]), key=str(files["key"]),
                            client_auth="require", verify_client=False)
    context = server_context(tls)
    assert context is not None
    assert context.verify_mode == ssl.CERT_NONE
