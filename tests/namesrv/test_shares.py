"""Networks have equal parts of a name server's time, and in each its connections."""
from __future__ import annotations

from collections import Counter

import pytest

from mqcore.turns import SLICE_S, Job, Shares

CROWD = 200
STEP_S = SLICE_S / 2


class Server:
    """Shares whose clock stands still but for what is done."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.done: list[str] = []                    # whose work, one step after the other
        self.again = True                            # who is answered asks again
        self.shares = Shares(lambda: self.now_s)

    def ask(self, network: str, who: int, *, steps: int = 1, express: bool = False) -> None:
        """Work of that many steps."""
        def job() -> Job:
            for _ in range(steps):
                self.now_s += STEP_S
                self.done.append(f"{network} {who}")
                yield
            if self.again:
                self.ask(network, who, steps=steps, express=express)

        self.shares.add(network, who, job(), express=express, stays=True)

    def run(self, count: int) -> Counter[str]:
        """So many slices; how many steps each has had meanwhile."""
        del self.done[:]
        for _ in range(count):
            self.shares.step()
        return Counter(self.done)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.mark.parametrize("express", [False, True])
def test_one_connection_has_as_much_as_all_of_another_network(server: Server, express: bool):
    server.shares.enter("honest")
    server.ask("honest", 0, express=express)
    for number in range(1, CROWD + 1):
        server.shares.enter("crowd")
        server.ask("crowd", number, steps=10, express=express)

    had = server.run(10 * CROWD)
    crowd = [count for who, count in had.items() if who.startswith("crowd")]
    assert 0.45 <= had["honest 0"] / len(server.done) <= 0.55
    assert len(crowd) == CROWD
    assert max(crowd) <= 2 * min(crowd)


def test_a_network_is_forgotten_with_its_last_connection_and_what_that_asked(server: Server):
    server.shares.enter("one")
    server.ask("one", 1, steps=3)
    server.again = False
    server.shares.leave("one")
    assert server.shares.waits_for("one", 1)
    while server.shares.waits():
        server.shares.step()
    assert server.done == ["one 1"] * 3
    assert not vars(server.shares)["_networks"]
