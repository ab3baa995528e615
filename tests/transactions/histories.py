"""
Random lives of transactions on a desk, and the small model that says what may come of them.

Producers are honest: what a transaction has decided stays decided, whoever is asked about it. A
message is written down by its body.
"""
from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from mqcore.broker.ports import AppendStatus
from tests.transactions.desk import (
    GIVEN_UP,
    HALF_TOPIC,
    OP_TOPIC,
    TIMEOUT_MS,
    Desk,
    Question,
    said,
)

TOPIC = "Orders"
CHECK_MAX = 3
STEPS = 40
TURNS_MAX = 100                      # of a round
ROUNDS_MAX = 40                      # until everything is settled
PATIENCE_S = 20                      # of immune messages
FIRST_TAG = 1_000


@dataclass
class Message:
    """A transaction as its producer knows it."""

    body: bytes
    commits: bool | None             # None: nobody will ever know
    half: int = -1                   # offset, -1: the broker has not answered
    ended: bool = False              # by the producer itself
    seen_ended: bool = False         # an end of it is dispatched
    blurred: bool = False            # a death came while there was a copy of it
    said: int = 0                    # ends, by whomever


@dataclass
class History:
    """One broker over one folder, from an empty store to the last settled message."""

    root: Path
    dice: random.Random
    messages: dict[bytes, Message] = field(default_factory=dict)
    open: list[Question] = field(default_factory=list)
    saved: tuple[int, int] = (0, 0)            # consumerOffset.json
    ends: list[Message] = field(default_factory=list)       # not dispatched yet
    reached: tuple[int, int] = (0, 0)
    deaths: int = 0

    def __post_init__(self) -> None:
        self.desk = Desk(self.root, check_max=CHECK_MAX)
        self.memory = self.desk.check.memory_bytes

    def live(self) -> None:
        steps = [
            (self.prepare, 6), (self.end, 4), (self.answer, 6), (self.write, 6),
            (self.dispatch, 4), (self.turn, 10), (self.wait, 3), (self.save, 2),
            (self.check_dies, 1), (self.writer_dies, 1), (self.all_die, 1),
        ]
        kinds = [step for step, weight in steps for _ in range(weight)]
        for _ in range(STEPS):
            self.dice.choice(kinds)()
        self.settle()
        self.judge()

    # -- producers ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        number = len(self.messages)
        message = Message(b"m%d" % number, self.dice.choice((True, True, False, None)))
        self.messages[message.body] = message
        properties = {}
        if self.dice.random() < 0.2:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(PATIENCE_S)
        self.desk.prepare(message.body, tag=FIRST_TAG + number, **properties)

    def end(self) -> None:
        """The producer ends a transaction, perhaps long after it was asked about it."""
        waiting = [message for message in self.messages.values()
                   if message.half >= 0 and not message.ended and message.commits is not None]
        if waiting:
            message = self.dice.choice(waiting)
            message.ended = True
            self.say(message, message.half)

    def answer(self) -> None:
        """Somebody of the group answers a question, or says that it does not know yet."""
        if not self.open:
            return
        question = self.open.pop(self.dice.randrange(len(self.open)))
        message = self.messages[question.body]
        if message.commits is not None and self.dice.random() < 0.7:
            self.say(message, question.half_offset)

    def say(self, message: Message, half: int) -> None:
        self.desk.end(half, commit=message.body if message.commits else None)
        self.ends.append(message)
        message.said += 1

    # -- the broker --------------------------------------------------------------------------------

    def write(self) -> None:
        bodies = list(self.messages)
        for tag, (status, offset) in self.desk.write().items():
            if tag >= FIRST_TAG and status == AppendStatus.PUT_OK:
                self.messages[bodies[tag - FIRST_TAG]].half = offset

    def dispatch(self) -> None:
        self.write()
        self.desk.dispatch()
        for message in self.ends:
            message.seen_ended = True
        self.ends.clear()

    def turn(self) -> None:
        self.desk.turn()
        self.hear()

    def hear(self) -> None:
        """What is asked now; a message whose end was seen is asked about only after a death."""
        for question in self.desk.questions():
            message = self.messages[question.body]
            assert message.blurred or not message.seen_ended, message
            assert question.times <= CHECK_MAX
            self.open.append(question)
        reached = self.desk.offsets
        assert reached[0] >= self.reached[0], "U2"
        assert reached[1] >= self.reached[1], "U2"
        self.reached = reached

    def wait(self) -> None:
        self.desk.pass_time(self.dice.choice((100, TIMEOUT_MS // 2, TIMEOUT_MS + 1)))

    def save(self) -> None:
        self.hear()
        self.saved = self.desk.known

    # -- deaths ------------------------------------------------------------------------------------

    def blur(self) -> None:
        """What was put back, or is being put back, may be asked about once more."""
        self.deaths += 1
        copies = [record["body"] for record in self.desk.records(HALF_TOPIC)]
        for body, message in self.messages.items():
            message.blurred |= self.desk.in_round or copies.count(body) > 1

    def check_dies(self) -> None:
        self.blur()
        self.desk.begin_check()
        self.assert_nothing_is_forgotten(self.desk.offsets)

    def writer_dies(self) -> None:
        """What waits in the rings is answered as unknown and not stored; ends among it are lost."""
        self.blur()
        self.desk.kill_writer()
        self.ends = [message for message in self.ends if self.is_ended(message)]

    def all_die(self) -> None:
        """The store is left, and offsets as they were saved last."""
        self.blur()
        self.ends.clear()
        self.assert_nothing_is_forgotten(self.saved)
        self.desk.begin(self.saved)
        self.desk.pass_time(0)
        self.reached = self.desk.offsets
        for message in self.messages.values():
            message.seen_ended |= self.is_ended(message)

    def is_ended(self, message: Message) -> bool:
        halves = {record["queueOffset"] for record in self.desk.records(HALF_TOPIC)
                  if record["body"] == message.body}
        return any(int(body) in halves for body in self.desk.bodies(OP_TOPIC))

    # -- what must be ------------------------------------------------------------------------------

    def assert_nothing_is_forgotten(self, offsets: tuple[int, int]) -> None:
        """Below them everything is settled by something that is in the log."""
        halves = self.desk.bodies(HALF_TOPIC)
        decided = {halves[int(op)] for op in self.desk.bodies(OP_TOPIC)}
        decided.update(self.desk.bodies(GIVEN_UP))
        for offset in range(offsets[0]):
            body = halves[offset]
            assert body in decided or body in halves[offset + 1:], (offset, offsets)
        for op in self.desk.bodies(OP_TOPIC)[:offsets[1]]:
            assert int(op) < offsets[0], (op, offsets)

    def settle(self) -> None:
        """Nobody dies any more, and who knows answers: everything is settled within some rounds."""
        self.dispatch()
        self.hear()
        for _ in range(ROUNDS_MAX):
            for question in self.open:
                message = self.messages[question.body]
                if message.commits is not None:
                    self.say(message, question.half_offset)
            self.open.clear()
            self.dispatch()
            if self.desk.offsets == self.desk.ends():
                return
            self.desk.pass_time(PATIENCE_S * 1_000 + 1)
            for _ in range(TURNS_MAX):
                over = self.desk.turn()
                self.dispatch()
                self.hear()
                if over:
                    break
        raise AssertionError(f"{self.desk.offsets} of {self.desk.ends()} after {ROUNDS_MAX} rounds")

    def judge(self) -> None:
        self.assert_nothing_is_forgotten(self.desk.offsets)
        delivered = self.desk.bodies(TOPIC)
        given_up = {record["body"]: int(said(record)["TRANSACTION_CHECK_TIMES"])
                    for record in self.desk.records(GIVEN_UP)}
        stored = set(self.desk.bodies(HALF_TOPIC))
        for body, message in self.messages.items():
            count = delivered.count(body)
            if message.commits and body in stored:
                assert count >= 1 or given_up[body] == CHECK_MAX, message
            if not message.commits:
                assert count == 0, message
            if message.commits is None and body in stored:
                assert given_up[body] == CHECK_MAX, message
            assert count <= message.said, message
        assert self.desk.check.memory_bytes == self.memory
