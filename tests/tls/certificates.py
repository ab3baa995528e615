"""Authorities and certificates for tests, by the commands that docs/security.md shows."""
from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

DEADLINE_S = 30


def openssl(*arguments: str | Path, text: str = "") -> str:
    """One command; what it wrote. AssertionError with its words when it fails."""
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
             password: str = "") -> tuple[Path, Path]:
        """Certificate and key of `name`; hosts: what it may be reached as."""
        own, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        certificate, extensions = self.folder / f"{name}.pem", self.folder / f"{name}.ext"
        secret = ("-passout", f"pass:{password}") if password else ("-nodes",)
        openssl("req", "-new", "-newkey", *key, *secret, "-subj", f"/CN={name}", "-keyout", own,
                "-out", request)
        extensions.write_text(f"subjectAltName={hosts}\n")
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
                "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", certificate)
        return certificate, own

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
