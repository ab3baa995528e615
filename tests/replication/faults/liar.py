"""
A slave that lies in its reports (ha.md 2): it says that it has what it cannot have.

What it was sent it may say that it has, as a slave does that keeps nothing: who reaches the port
of slaves is believed so far, in stock too.
"""
from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable

from mqcore.replication.greet import ANNOUNCE

REPORT = struct.Struct(">q")
FRAME = struct.Struct(">qi")
HEARD_S = 2.0
FAR = (1, 1000, 1 << 20, 1 << 40, (1 << 63) - 1)


async def lie(master: str, end: Callable[[], int], dice: random.Random) -> bool:
    """One lie on a connection of its own; whether the master has closed it for that."""
    host, _, port = master.rpartition(":")
    try:
        async with asyncio.timeout(HEARD_S):
            reader, writer = await asyncio.open_connection(host, int(port))
    except (OSError, TimeoutError):
        return False
    try:
        async with asyncio.timeout(HEARD_S):
            await dice.choice((_beyond, _nonsense, _unsent, _twice))(reader, writer, end, dice)
            while await reader.read(65_536):
                continue
        return True
    except ConnectionError:
        return True
    except (TimeoutError, asyncio.IncompleteReadError):       # it went before it was lied to
        return False
    finally:
        writer.transport.abort()


def _say(writer: asyncio.StreamWriter, *positions: int) -> None:
    writer.write(b"".join(map(REPORT.pack, positions)))


async def _beyond(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                  end: Callable[[], int], dice: random.Random) -> None:
    """More of the log than there is, at once; the log may grow by little until it is heard."""
    ours = [ANNOUNCE] * dice.randrange(2)
    _say(writer, *ours, min((1 << 63) - 1, end() + (1 << 22) + dice.choice(FAR)))


async def _nonsense(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                    _end: Callable[[], int], dice: random.Random) -> None:
    _say(writer, -2 - dice.randrange(1 << 40))


async def _unsent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                  end: Callable[[], int], dice: random.Random) -> None:
    """A beginning like any slave's, and then more than it was sent."""
    _say(writer, 0)
    position, size = FRAME.unpack(await reader.readexactly(FRAME.size))
    _say(writer, max(position + size, end()) + (1 << 22) + dice.randrange(1 << 20))


async def _twice(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                 _end: Callable[[], int], _dice: random.Random) -> None:
    """A position, and then the word that comes before all positions."""
    _say(writer, ANNOUNCE, ANNOUNCE)
