"""The client's protocol core, turned by hand."""
import pytest

from mqcore.client.core.protocol import ClientProtocol
from mqcore.client.errors import QueueFull
from mqcore.wire.command import FrameError, encode, request, response


def test_an_answer_matches_its_request_once():
    core = ClientProtocol()
    asked = request(105)
    core.start(asked, 1000, 0)
    (answer,) = core.feed(encode(response(asked, 17)))

    assert core.match(answer)
    assert not core.match(answer)
    assert core.pending_count == 0


@pytest.mark.parametrize("step", [1, 3, 7, 50])
def test_frames_arrive_whole_however_they_are_cut(step):
    core = ClientProtocol()
    sent = [request(n, {"x": "y" * n}, bytes(n)) for n in range(20)]
    stream = b"".join(encode(command) for command in sent)
    received = []
    for start in range(0, len(stream), step):
        received += core.feed(stream[start:start + step])

    assert received == sent


def test_only_requests_past_their_deadline_expire():
    core = ClientProtocol()
    soon, later, answered = request(1), request(2), request(3)
    core.start(soon, 100, 0)
    core.start(later, 300, 0)
    core.start(answered, 50, 0)
    core.match(response(answered, 0))

    assert core.next_deadline() == 100
    assert core.expired(99) == []
    assert core.expired(100) == [soon.opaque]
    assert core.next_deadline() == 300
    core.cancel(later.opaque)
    assert core.next_deadline() is None
    assert core.expired(1000) == []


def test_requests_beyond_the_limit_are_refused():
    core = ClientProtocol(pending_count_max=1)
    core.start(request(1), 100, 0)

    with pytest.raises(QueueFull):
        core.start(request(1), 100, 0)


def test_an_opaque_in_use_is_refused():
    core, asked = ClientProtocol(), request(1)
    core.start(asked, 100, 0)

    with pytest.raises(ValueError, match="opaque"):
        core.start(asked, 100, 0)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x7f\0\0\0", b"\0\0\0\x04\x05\0\0\0"])
def test_nonsense_is_a_frame_error(data):
    with pytest.raises(FrameError):
        list(ClientProtocol().feed(data))
