"""A PostgreSQL server for tests: in a temporary folder, on a unix socket, gone with them."""
from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import wait_until

NOBODY = "nobody"
STOP_S = 30.0
# -- programs are killed here, never the machine: nothing has to reach the disk
SETTINGS = ("listen_addresses=", "fsync=off", "full_page_writes=off", "synchronous_commit=off",
            "shared_buffers=8MB", "max_connections=60", "autovacuum=off")


def programs() -> Path | None:
    """The folder with initdb and postgres, the newest one; None: there is none."""
    found = [Path(path).resolve().parent for name in ("postgres",) if (path := shutil.which(name))]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"),
                    key=lambda folder: float(folder.parent.name), reverse=True)
    return next((folder for folder in found if (folder / "initdb").exists()), None)


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A running server with the programs of a folder; what a URL says after `postgresql://`."""
    home = Path(tempfile.mkdtemp(prefix="mqcore-pg-"))      # its socket's path has to be short
    try:
        if os.geteuid() == 0:
            os.chown(home, pwd.getpwnam(NOBODY).pw_uid, pwd.getpwnam(NOBODY).pw_gid)
        with (home / "log").open("wb") as log:
            subprocess.run(
                _unprivileged(str(folder / "initdb"), "--no-sync", "--auth=trust", "-U", "test",
                              "--encoding=UTF8", "--locale=C", "-D", str(home / "data")),
                cwd=home, stdout=log, stderr=log, check=True)
            server = subprocess.Popen(
                _unprivileged(str(folder / "postgres"), "-D", str(home / "data"), "-k", str(home),
                              *(f"-c{each}" for each in SETTINGS)),
                cwd=home, stdout=log, stderr=log)
        try:
            wait_until(lambda: server.poll() is not None or b"ready to accept connections" in (
                home / "log").read_bytes(), "a PostgreSQL server")
            assert server.poll() is None, (home / "log").read_text(errors="replace")
            yield f"test@/postgres?host={home}"
        finally:
            server.send_signal(signal.SIGINT)       # ends connections, and then itself
            server.wait(STOP_S)
    finally:
        shutil.rmtree(home)


def _unprivileged(*command: str) -> list[str]:
    """As a user that postgres runs as; it ends with this process, however that ends."""
    prefix = ["setpriv", "--pdeathsig=INT"]
    if os.geteuid() == 0:
        prefix += [f"--reuid={NOBODY}", f"--regid={pwd.getpwnam(NOBODY).pw_gid}", "--clear-groups"]
    return [*prefix, *command]
