"""What `mqcore store verify` says: findings, how bad each is, and the verdict (docs/verify.md)."""
from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

DAMAGE: Final = "damage"       # something is lost or wrong, and no start will make it right
MEND: Final = "mend"           # the next start makes it right; nothing acknowledged is lost
NOTE: Final = "note"           # worth knowing; nothing is wrong

STATUS_SOUND: Final = 0
STATUS_DAMAGED: Final = 1
STATUS_MEND: Final = 3
WORDS: Final = {STATUS_SOUND: "sound", STATUS_DAMAGED: "damaged",
                STATUS_MEND: "the next start mends it; nothing acknowledged is lost"}


@dataclass(frozen=True)
class NamedFinding:
    """
    One thing found.

    severity  DAMAGE, MEND or NOTE
    file      below the store's root; a folder where no single file is meant
    position  byte in that file, None: the file as a whole
    text      what is there and what was expected
    """

    severity: str
    file: str
    position: int | None
    text: str

    def line(self) -> str:
        place = self.file if self.position is None else f"{self.file} at {self.position}"
        return f"{self.severity}: {place}: {self.text}"


@dataclass
class Report:
    """One verification. figures: counts by name; queues: one entry a queue, sorted."""

    store: str
    findings: list[NamedFinding] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)
    queues: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def status(self) -> int:
        """The exit status: the worst finding decides."""
        severities = {finding.severity for finding in self.findings}
        if DAMAGE in severities:
            return STATUS_DAMAGED
        return STATUS_MEND if MEND in severities else STATUS_SOUND

    def add(self, severity: str, file: str, position: int | None, text: str) -> None:
        self.findings.append(NamedFinding(severity, file, position, text))

    def expired_queues(self) -> set[str]:
        """
        The folders, below the store, of sound queues that have no record in the log any more. Who
        has queues written anew leaves these: nothing else knows their numbers, and groups that are
        beyond what begins at 0 pass over as many messages.
        """
        wrong = {"/".join(finding.file.split("/")[:3]) for finding in self.findings
                 if finding.severity != NOTE}
        return {f"consumequeue/{queue['topic']}/{queue['queueId']}" for queue in self.queues
                if queue["on_disk"] and not queue["records"] and not queue["live"]} - wrong

    def as_dict(self) -> dict[str, Any]:
        return {"store": self.store, "status": self.status, "verdict": WORDS[self.status],
                "seconds": round(self.seconds, 3), "figures": self.figures,
                "findings": [asdict(finding) for finding in self.findings],
                "queues": self.queues}

    def lines(self) -> list[str]:
        """The report for people: the worst first."""
        figures = self.figures
        order = (DAMAGE, MEND, NOTE)
        found = sorted(self.findings, key=lambda finding: order.index(finding.severity))
        rate = figures.get("bytes", 0) / self.seconds / 1e6 if self.seconds > 0 else 0.0
        return [
            *(finding.line() for finding in found),
            f"{self.store}: {figures.get('segments', 0)} segments, "
            f"{figures.get('records', 0):,} records in {figures.get('bytes', 0):,} bytes, "
            f"{len(self.queues):,} queues with {figures.get('entries', 0):,} entries, "
            f"{figures.get('index_files', 0)} index files with "
            f"{figures.get('keys_matched', 0):,} keys; {self.seconds:.2f} s, {rate:,.0f} MB/s",
            f"verdict: {WORDS[self.status]}",
        ]
