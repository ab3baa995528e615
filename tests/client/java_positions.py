"""
Which messages Java's client would deliver in a life of a group: the least that ours has to.

client.md 4.6 to 4.10, 4.17 and 5.1 say it by times; where they depend on the moment of a timer,
what is certain is taken. Java keeps a group's place in a queue when three things come together:

1. The member knows it: read from the store; or something was consumed; or the first pull was
   answered, after 15 s in a queue that has nothing. A lite pull member knows only what it polled.
2. The member wrote it: five seconds after at the latest, or as it left, or gave the queue up.
3. The broker saved it: five seconds later at the latest, or as it ended in order.
"""
from __future__ import annotations

from dataclasses import dataclass, field

FIRST_ANSWER_S = 15.0
WRITE_S = 5.0
FIRST_WRITE_S = 10.0            # after the member's start
SAVE_S = 5.0
CERTAIN_S = 1.0                 # of any step: what happened later may not have taken effect
DELIVERY_S = 2.0                # from a message's storing to its delivery, at the most


@dataclass
class JavaQueue:
    """
    One queue of one group, as Java's client and a broker have it.

    is_local   the place is in a file of the member's machine, which no broker loses
    knows_idle the first answer of an idle queue is a place that is written (not of lite pull)
    """

    is_local: bool
    knows_idle: bool
    place: int = 0                              # the next message to deliver
    written_at: float | None = None             # the store has a place since then; None: none
    is_held: bool = False
    known_at: float = 0.0
    started_at: float = 0.0
    coming: list[tuple[float, int]] = field(default_factory=list)       # of this hold, not certain
    owed: set[int] = field(default_factory=set)                         # it delivers these

    def take(self, now: float, started_at: float, begin: int, end: int, *, is_young: bool) -> None:
        """A member holds it from now on. begin: where a group without a place starts."""
        is_known = self.written_at is not None
        if not is_known:
            self.place = 0 if is_young and not self.is_local else begin
        self.is_held, self.started_at = True, started_at
        self.known_at = now if is_known or (is_young and not self.is_local) else (
            now + FIRST_ANSWER_S if self.knows_idle else float("inf"))
        self.coming = [(now, offset) for offset in range(self.place, end)]
        if self.coming:
            self.known_at = min(self.known_at, now + DELIVERY_S)

    def store(self, now: float, offset: int) -> None:
        """A message was stored."""
        if self.is_held:
            self.coming.append((now, offset))
            self.known_at = min(self.known_at, now + DELIVERY_S)

    def _deliver(self, now: float) -> None:
        for at, offset in self.coming:
            if at + DELIVERY_S <= now and offset >= self.place:
                self.owed.add(offset)
                self.place = offset + 1
        self.coming = [(at, offset) for at, offset in self.coming if at + DELIVERY_S > now]

    def look(self, now: float) -> None:
        """The member's timer has written what it knew."""
        if not self.is_held:
            return
        self._deliver(now)
        due = max(self.known_at, self.started_at + FIRST_WRITE_S) + WRITE_S + CERTAIN_S
        if self.written_at is None and due <= now:
            self.written_at = due

    def leave(self, now: float, *, can_write: bool) -> None:
        """The queue is given up, or the member leaves in order."""
        self.look(now)
        if can_write and self.known_at + CERTAIN_S <= now and self.written_at is None:
            self.written_at = now
        self.is_held = False

    def crash(self, now: float) -> None:
        self.look(now)
        self.is_held = False

    def lose(self, now: float) -> None:
        """The broker is killed: what it had not saved is gone; a member writes it again."""
        self.look(now)
        if self.is_local or self.written_at is None:
            return
        if self.written_at + SAVE_S + CERTAIN_S > now:
            self.written_at = None

    def reset(self, offset: int) -> None:
        """An operator gave the group, which is away, another place."""
        self.place = offset
