"""Authorities and certificates for tests, by the commands that docs/security.md shows."""
from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

from tests.support.ci import unavailable

DEADLINE_S = 120


def require_openssl() -> None:
    """Skip the calling test unless there is the command; in CI, fail it."""
    if shutil.which("openssl") is None:
        unavailable("needs the openssl command")


def openssl(*arguments: str | Path, text: str = "") -> str:
    """One command; what it wrote. AssertionError with its words when it fails."""
    require_openssl()
    done = subprocess.run(["openssl", *arguments], input=text, capture_output=True, text=True,
                          timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Authority:
    """An authority in a folder; it signs certificates into the same one."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key,
                "-out", self.certificate)

    def sign(self, name: str, hosts: str = "IP:127.0.0.1,DNS:localhost", *,
             key: tuple[str, ...] = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
             password: str = "", days: int = 2, subject: str = "CN") -> tuple[Path, Path]:
        """
        Certificate and key of `name`; hosts: what it may be reached as; days: from now on; subject:
        what the name stands as in its subject.
        """
        own, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        certificate, extensions = self.folder / f"{name}.pem", self.folder / f"{name}.ext"
        secret = ("-passout", f"pass:{password}") if password else ("-nodes",)
        openssl("req", "-new", "-newkey", *key, *secret, "-subj", f"/{subject}={name}",
                "-keyout", own, "-out", request)
        extensions.write_text(f"subjectAltName={hosts}\n")
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
                "-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", certificate)
        return certificate, own

    def sign_expired(self, name: str, hosts: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """The same, of a certificate whose time is over."""
        certificate, own = self.sign(name, hosts)
        openssl("ca", *self._book(), "-batch", "-notext", "-in", self.folder / f"{name}.csr",
                "-startdate", "20200101000000Z", "-enddate", "20200201000000Z", "-extfile",
                self.folder / f"{name}.ext", "-out", certificate)
        return certificate, own

    def revoke(self, *certificates: Path) -> Path:
        """Its revocation list, with these and all before them in it."""
        for certificate in certificates:
            openssl("ca", *self._book(), "-revoke", certificate)
        crl = self.folder / "crl.pem"
        openssl("ca", *self._book(), "-gencrl", "-out", crl)
        return crl

    def _book(self) -> tuple[str | Path, ...]:
        """Of what `openssl ca` has signed and revoked."""
        settings = self.folder / "ca.conf"
        if not settings.exists():
            (self.folder / "index").touch()
            settings.write_text(
                "[ca]\ndefault_ca = own\n"
                f"[own]\ndatabase = {self.folder}/index\nnew_certs_dir = {self.folder}\n"
                "rand_serial = yes\ndefault_md = sha256\npolicy = any\ndefault_crl_days = 2\n"
                "unique_subject = no\n[any]\ncommonName = supplied\n")
        return "-config", settings, "-cert", self.certificate, "-keyfile", self._key

    def client(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """A client that trusts this authority alone, and shows `certificate`."""
        context = ssl.create_default_context(cafile=self.certificate)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context


def careless() -> ssl.SSLContext:
    """A client that believes everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
