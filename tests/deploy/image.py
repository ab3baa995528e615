"""
An image made of a Dockerfile without a container engine: each stage is a layer of overlayfs upon
this machine's own root, in which the instructions are carried out, and a container is a process 1
in namespaces of its own below such a layer. Needs root.

The base images are not to be had; this machine stands in for them. Of all else the file's own
words are used.
"""
from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

STEP_LIMIT_S = 600
# A layer as root: proc and devices inside, which no other mount namespace sees.
ENTER = """
set -e
mount -t overlay overlay -o "$1" "$2"
mount -t proc proc "$2/proc"
mount --rbind /dev "$2/dev"
shift 2
exec "$@"
"""
# The same for a container: a root that cannot be written, /dev/shm of 64 MiB, and a volume. The
# mounts of this machine go with the old root.
CONTAIN = """
set -e
mount --make-rprivate /
mount -t overlay overlay -o "$1,ro" "$2"
cd "$2"
mount -t proc proc proc
mount -t tmpfs tmpfs dev
for each in null zero full random urandom; do
    touch dev/$each && mount --bind /dev/$each dev/$each
done
mkdir dev/shm && mount -t tmpfs -o size=64m,mode=1777 shm dev/shm
mount --bind "$3" "$4"
mount --bind "$5" etc/mqcore
pivot_root . mnt
umount -l /mnt
user="$6"
shift 6
cd "$1" && shift
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set=-all \
    --inh-caps=-all "$@"
"""


@dataclass
class Stage:
    """The layer that a stage has made, and the settings of its containers."""

    layer: Path
    environment: dict[str, str]
    folder: str = "/"
    user: str = "0"
    words: dict[str, list[str]] = field(default_factory=dict)     # ENTRYPOINT, CMD, HEALTHCHECK
    said: dict[str, str] = field(default_factory=dict)            # STOPSIGNAL, VOLUME, EXPOSE


def instructions(text: str) -> list[tuple[str, str]]:
    """The lines of a Dockerfile: an instruction and its words."""
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word.upper(), rest.strip()) for line in lines if line.strip()
            for word, _, rest in [line.strip().partition(" ")]]


class Builder:
    """Carries out a Dockerfile. folder: an empty one, for the layers."""

    def __init__(self, file: Path, context: Path, folder: Path) -> None:
        self._lines = instructions(file.read_text(encoding="utf-8"))
        self._ignore = _Ignore(file.with_name(f"{file.name}.dockerignore"))
        self._context, self._folder = context, folder
        self._stages: dict[str, Stage] = {}
        self._variables: dict[str, str] = {}
        # beside what the file says: folders that are there before the first RUN, and variables
        self.added: list[tuple[Path, str]] = []
        self.environment: dict[str, str] = {}

    def build(self) -> Stage:
        """The last stage."""
        stage = None
        for word, rest in self._lines:
            if word == "FROM":
                stage = self._begin(rest)
            elif word == "ARG":
                name, _, value = rest.partition("=")
                self._variables.setdefault(name, value)
            else:
                assert stage is not None
                self._do(stage, word, rest)
        assert stage is not None
        return stage

    def _begin(self, rest: str) -> Stage:
        base, *alias = rest.split(" AS ")
        alias_or_number = alias[0] if alias else str(len(self._stages))
        layer = self._folder / alias_or_number
        (layer / "usr/local/bin").mkdir(parents=True)
        (layer / "etc/mqcore").mkdir(parents=True)       # a mount point: a runtime makes it
        (layer / "mnt").mkdir()
        if "python:" in self._filled(base):              # this machine's, for every account
            program = Path(os.path.realpath(sys.executable))
            for name in ("python", "python3"):
                python = layer / "usr/local/bin" / name
                python.write_text(f'#!/bin/sh\nexec {program} "$@"\n', encoding="utf-8")
                python.chmod(0o755)
            for above in reversed(program.parents[:-1]):
                (layer / above.relative_to("/")).mkdir(exist_ok=True)
        stage = self._stages[alias_or_number] = Stage(layer, {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"})
        return stage

    def _filled(self, text: str, environment: dict[str, str] | None = None) -> str:
        values = {**self._variables, **(environment or {})}
        return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda match: values[match[1] or match[2]], text)

    def _do(self, stage: Stage, word: str, rest: str) -> None:
        if word == "COPY":
            self._copy(stage, rest)
        elif word == "RUN":
            self._run(stage, rest)
        elif word == "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                stage.environment[name] = self._filled(value, stage.environment)
        elif word == "WORKDIR":
            stage.folder = rest
            (stage.layer / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            stage.user = rest.partition(":")[0]
        elif word in ("ENTRYPOINT", "CMD"):
            stage.words[word] = json.loads(rest)
        elif word == "HEALTHCHECK":
            stage.words[word] = json.loads(rest.partition(" CMD ")[2])
        else:
            stage.said[word] = rest

    def _copy(self, stage: Stage, rest: str) -> None:
        words = rest.split()
        place = self._context
        ignore = self._ignore
        if words[0].startswith("--from="):
            place, ignore = self._stages[words.pop(0).removeprefix("--from=")].layer, None
        *sources, to = words
        target = stage.layer / os.path.join(stage.folder, to).lstrip("/")
        for source in sources:
            path = place / source.lstrip("/")
            if path.is_dir():
                shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True,
                                ignore=ignore.within(self._context) if ignore else None)
            else:
                assert ignore is None or not ignore.leaves_out(source), source
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)

    def _run(self, stage: Stage, command: str) -> None:
        for path, to in self.added:
            shutil.copytree(path, stage.layer / to.lstrip("/"), dirs_exist_ok=True)
        self.added.clear()
        environment = {
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            **self._variables, **stage.environment, **self.environment}
        work, root = self._folder / "work", self._folder / "root"
        work.mkdir(exist_ok=True)
        root.mkdir(exist_ok=True)
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", ENTER, "sh",
             f"lowerdir=/,upperdir={stage.layer},workdir={work}", root,
             "chroot", root, "sh", "-c", f"cd {stage.folder} && {command}"],
            env=environment, capture_output=True, text=True, timeout=STEP_LIMIT_S, check=False)
        assert done.returncode == 0, f"RUN {command}\n{done.stdout}{done.stderr}"


class _Ignore:
    """A .dockerignore: the last pattern that fits decides."""

    def __init__(self, file: Path) -> None:
        self._patterns = [line for line in file.read_text(encoding="utf-8").splitlines()
                          if line and not line.startswith("#")]

    def leaves_out(self, name: str) -> bool:
        out = False
        parts = Path(name).parts
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for line in self._patterns:
            pattern = line.removeprefix("!")
            if any(self._fits(one, pattern) for one in above):
                out = not line.startswith("!")
        return out

    def _fits(self, name: str, pattern: str) -> bool:
        if pattern.startswith("**/"):
            return fnmatch.fnmatchcase(name.rpartition("/")[2], pattern[3:])
        return fnmatch.fnmatchcase(name, pattern) and name.count("/") == pattern.count("/")

    def within(self, context: Path):                      # type: ignore[no-untyped-def]
        def ignored(folder: str, names: list[str]) -> set[str]:
            inside = Path(folder).relative_to(context)
            return {name for name in names if self.leaves_out(str(inside / name))}

        return ignored


@contextlib.contextmanager
def container(
    stage: Stage, folder: Path, arguments: list[str], environment: dict[str, str], *,
    settings: Path, within: list[str], output: Path,
) -> Iterator[subprocess.Popen[bytes]]:
    """
    A container of a stage, its process 1 killed in the end, if it still runs; the process that it
    gives is the parent of process 1, and ends as that does.

    settings: a folder, mounted at /etc/mqcore; within: the words of a control group.
    """
    volume, root = folder / "volume", folder / "root"
    work = stage.layer.with_name(f"{stage.layer.name}.work")
    for each in (volume, root, work):
        each.mkdir(exist_ok=True)
    os.chown(volume, int(stage.user), int(stage.user))
    words = arguments or stage.words["CMD"]
    with output.open("wb") as file, subprocess.Popen(
            [*within, "unshare", "--mount", "--pid", "--fork", "sh", "-c", CONTAIN,
             "sh", f"lowerdir=/,upperdir={stage.layer},workdir={work}", root, volume,
             stage.said["VOLUME"].lstrip("/"), settings, stage.user, stage.folder,
             *stage.words["ENTRYPOINT"], *words],
            env={**stage.environment, **environment}, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            if first := process_one(process.pid):     # and with it all that it contains
                os.kill(first, signal.SIGKILL)
            process.wait()


def process_one(parent: int) -> int:
    """The first process of a container, by its number outside; 0: there is none."""
    with contextlib.suppress(OSError, IndexError):
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return int(children[0])
    return 0


def inside(stage: Stage, pid: int, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a container, as an engine's `exec` runs it; pid: of its process 1."""
    return subprocess.run(
        ["nsenter", "-t", str(pid), "--mount", "--pid", "-S", stage.user, "-G", stage.user, *words],
        env=stage.environment, capture_output=True, text=True, check=False, timeout=STEP_LIMIT_S)
