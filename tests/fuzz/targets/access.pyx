"""
Access control on the serving path, which has to judge every request as the coordinator does: any
header and body, signed for what the general reader finds in it. With the interpreter, whose rules
are the oracle.
"""
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from mqcore.layout cimport SLOT_SERVING
from mqcore.net.identity cimport Identity
from mqcore.net.remoting.access cimport AccessGuard, access_check
from mqcore.net.remoting.frames cimport ONEWAY_BIT, RESPONSE_BIT, Request
from mqcore.net.requests cimport HANDLE_FORWARD, HANDLED
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.shm.access cimport access_open
from mqcore.shm.segment cimport Segment
from mqcore.wire.header cimport HEADER_BROKEN, HEADER_UNUSUAL, header_read_all

from tests.fuzz.targets.input cimport Input, input_of, take_byte, take_part

from mqcore.acl import addresses, needs
from mqcore.acl.rules import AccessRefusal, signature
from mqcore.turns import finished
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import FrameError, decode
from mqcore.wire.signed import OTHER_LAYOUT
from tests.acl import requests
from tests.fuzz.seeds import SIGNATURE_HERE, WORLD_SEED

DECIDED = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
           RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.END_TRANSACTION}
PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
PEERS = requests.V4
REPLACED = "\ufffd"

cdef AccessGuard* guards[2]            # of our rules, of stock's
cdef Identity identity                 # whose bodies may be as long as an input's (AR5)
cdef Transport transport
rules = []
kept = []


cdef bytes frame_of(bytes header, bytes body, bint binary):
    return (binary << 24 | len(header)).to_bytes(4, "big") + header + body


cdef bytes signed(bytes header, bytes body, bint binary, object accounts):
    """The header, with the signature of whom it names in the place that it leaves for one."""
    if SIGNATURE_HERE not in header:
        return header
    try:
        ext = decode(frame_of(header, body, binary)).ext or {}
    except FrameError:
        return header
    account = accounts.get(ext.get("AccessKey"))
    if account is None:
        return header
    return header.replace(SIGNATURE_HERE, signature(account.secret_key, ext, body))


def served(command):
    """With the names that are read when it is served alone; None: it lacks one of them."""
    ext = dict(command.ext)
    if command.code in PULLS:
        names, others = ("topic", "consumerGroup"), ()
    elif command.code == RequestCode.SEND_MESSAGE:
        names, others = ("topic",), ("a", "b")
    else:
        names, others = ("b",), ("group", "topic")
    for name in others:
        ext.pop(name, None)
    return replace(command, ext=ext) if all(ext.get(name) for name in names) else None


def expected(command, host, all_):
    """
    What the coordinator says: (is it refused, is it served without a look). None: whatever it says,
    nothing is served.
    """
    found = finished(all_.identify(command, host))
    if isinstance(found, AccessRefusal):
        if found.reason == OTHER_LAYOUT and command.code not in DECIDED:
            return None                    # the coordinator looks at layouts
        return True, False
    if found is None:
        is_white = addresses.contains(all_.white, addresses.packed(host))
        return False, is_white or command.code in DECIDED
    if command.code not in DECIDED:
        return False, False
    if command.code == RequestCode.END_TRANSACTION:
        return False, True                 # what it publishes to is known when it is served
    stock = all_.stock_permissions
    if stock and needs.is_trace(command):
        return False, True
    command = served(command)
    if command is None:
        return None
    wanted = finished(needs.wanted(command, stock=stock))
    refusal = all_.refusal(found, command.code, wanted.permissions, admin=wanted.admin)
    return refusal is not None, refusal is None


cdef int guard(const uint8_t* data, size_t size) noexcept with gil:
    """| a header | body | its length, a byte | form, rules and peer, a byte |"""
    cdef Input left = input_of(data, size)
    cdef uint8_t word = take_byte(&left)
    cdef int32_t body_length = <int32_t>take_part(&left)
    cdef int32_t header_length
    cdef bint binary = word & 1
    cdef int which = word >> 1 & 1
    cdef Connection c
    cdef Request request
    cdef uint8_t* copied
    cdef int result
    host = PEERS[(word >> 2) % len(PEERS)]
    body = PyBytes_FromStringAndSize(<const char*>data + left.left - body_length, body_length)
    header = signed(PyBytes_FromStringAndSize(<const char*>data, left.left - body_length), body,
                    binary, rules[which].accounts)
    header_length = <int32_t>len(header)
    address = addresses.packed(host)
    # in memory of just that size: one byte too far is seen
    copied = <uint8_t*>malloc(max(header_length + body_length, 1))
    memcpy(copied, <const char*>header, header_length)
    memcpy(copied + header_length, <const char*>body, body_length)
    memset(&c, 0, sizeof(c))
    memset(&request, 0, sizeof(request))
    memcpy(c.address, <const char*>address, len(address))
    result = header_read_all(copied, header_length, binary, &request.header,
                             &guards[which].fields)
    if result == HEADER_BROKEN:
        free(copied)
        return 0
    request.unusual = result == HEADER_UNUSUAL or guards[which].fields.more
    is_answer = request.header.flag & RESPONSE_BIT
    request.header.flag |= ONEWAY_BIT      # nobody is there to be answered
    request.header_length = header_length
    request.length = 4 + header_length + body_length
    request.body = copied + header_length
    request.body_length = body_length
    guards[which].refusal_count = 0
    result = access_check(guards[which], &c, &request)
    free(copied)
    assert result == HANDLE_FORWARD or result == HANDLED
    refused, passed = result == HANDLED, bool(request.passed)
    if request.unusual or is_answer:
        assert not refused                 # the coordinator looks, or there is nothing to look at
        return 0
    command = decode(frame_of(header, body, binary))
    if any(REPLACED in part for pair in (command.ext or {}).items() for part in pair if part):
        return 0                           # of no valid UTF-8 each reader has its own way
    wanted = expected(command, host, rules[which])
    assert wanted is None or wanted == (refused, passed and not refused), (
        command, host, wanted, refused, passed)
    return 0


def begin() -> None:
    """Both kinds of rules over one world."""
    cdef Segment segment
    cdef int which
    folder = tempfile.TemporaryDirectory(prefix="mqcore-fuzz-")
    kept.append(folder)
    text = requests.world(Random(WORLD_SEED))
    for which in range(2):
        rules.append(requests.read(Path(folder.name) / str(which), text, stock=bool(which)))
        shown = requests.shown(rules[which], f"/mqcore-fuzz-access-{which}")
        segment = shown.__enter__()
        kept.append((shown, segment))
        guards[which] = <AccessGuard*>calloc(1, sizeof(AccessGuard))
        transport.slot = &segment.shm.slots[SLOT_SERVING]
        guards[which].transport = &transport
        guards[which].identity = &identity
        access_open(&guards[which].access, &segment.shm)


TARGETS = {"guard": <size_t>&guard}
