"""Who serves a request (remoting.md 2.4)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.net.remoting.access cimport ACCESS_TOPIC, access_refuse
from mqcore.net.remoting.command cimport (
    Command,
    command_close,
    command_end,
    command_of_pull,
    command_of_send,
)
from mqcore.net.remoting.frames cimport ONEWAY_BIT, RESPONSE_BIT
from mqcore.net.remoting.headers cimport is_pop, is_pull, is_send, read_asker, read_end, read_pull, read_send
from mqcore.net.remoting.reply cimport reply_plain
from mqcore.net.requests cimport (
    HANDLED,
    HANDLE_CLOSE,
    HANDLE_DENIED,
    HANDLE_FORWARD,
    HANDLE_STALL,
    HANDLE_WAIT,
    Asker,
    EndRequest,
    PullRequest,
    SendRequest,
)
from mqcore.net.serving.forward cimport FORWARD_BYTES_MAX, forward_frame
from mqcore.net.serving.limits cimport (
    Limits,
    limits_hold,
    limits_identified,
    limits_refused_send,
    limits_taken,
)
from mqcore.net.serving.parked cimport PARK_NOT, PARK_REQUEST, PARK_SEND, PARK_UNREAD
from mqcore.net.serving.peer cimport peer_of, say
from mqcore.net.serving.pops cimport pop_frame
from mqcore.net.serving.pull cimport serve_pull
from mqcore.net.serving.send cimport serve_send
from mqcore.net.serving.transaction cimport serve_end
from mqcore.net.transport.close_reasons cimport CLOSE_MEMORY
from mqcore.net.transport.connections cimport connection_close
from mqcore.net.transport.transport cimport connection_find
from mqcore.wire.codes cimport (
    REQUEST_END_TRANSACTION,
    RESPONSE_REQUEST_CODE_NOT_SUPPORTED,
    RESPONSE_SYSTEM_BUSY,
    RESPONSE_SYSTEM_ERROR,
)
from mqcore.wire.header cimport HEADER_READ, header_read

cdef inline bint is_native(int32_t code) noexcept nogil:
    return is_send(code) or is_pull(code) or code == REQUEST_END_TRANSACTION


cdef int serve_natively(RequestHandler* h, Connection* c, const Request* request,
                        bint decided) noexcept nogil:
    """The one switch from a code to its command. decided: the coordinator has decided already."""
    cdef SendRequest send
    cdef PullRequest pull
    cdef EndRequest end
    cdef int result
    if is_send(request.header.code):
        if not read_send(request, &send):
            return HANDLE_FORWARD
        send.born_host = peer_of(c).host
        send.born_host_size = peer_of(c).host_size
        return serve_send(h.sends, c, &send, decided)
    if is_pull(request.header.code):
        if peer_of(c).fast_port:       # served on the main port only (broker.md 1.1)
            if not request.header.flag & ONEWAY_BIT:
                reply_plain(h.remoting.transport, c, request.header.binary, request.header.opaque,
                            RESPONSE_REQUEST_CODE_NOT_SUPPORTED, " request type 11 not supported")
            return HANDLED
        if not read_pull(request, &pull):
            return HANDLE_FORWARD
        return serve_pull(h.pulls, c, &pull, decided)
    if not read_end(request, &end):
        return HANDLE_FORWARD
    result = serve_end(h.ends, c, &end)
    if result == HANDLE_DENIED:
        return access_refuse(h.guard, c, request, ACCESS_TOPIC, h.ends.denied, h.ends.denied_length)
    return result


cdef bint holds_back(void* handler, Connection* c) noexcept nogil:
    cdef Limits* limits = (<RequestHandler*>handler).limits
    return limits.on and limits_hold(limits, c)


cdef void refused(void* handler, Connection* c, const Request* request) noexcept nogil:
    front_refused(<RequestHandler*>handler, c, request.length, is_send(request.header.code))


cdef void front_refused(RequestHandler* h, Connection* c, int64_t bytes, bint sends) noexcept nogil:
    if h.limits.on:
        limits_taken(h.limits, c, bytes)
        if sends:
            limits_refused_send(h.limits, c)


cdef inline int counted(RequestHandler* h, Connection* c, uint64_t id, int64_t length,
                        int result) noexcept nogil:
    """`result`, of what is within the limits; its connection, of that id, may have ended by it."""
    if h.limits.on and result == HANDLED and connection_find(h.limits.transport, id) != NULL:
        limits_taken(h.limits, c, length)
    return result


cdef int serve(void* handler, Connection* c, Request* request) noexcept nogil:
    cdef RequestHandler* h = <RequestHandler*>handler
    cdef uint64_t id = c.id
    cdef int result
    if h.limits.on:
        if request.account != NULL:
            limits_identified(h.limits, c, request.account.hash)
        if limits_hold(h.limits, c):
            return HANDLE_WAIT
    if request.unusual:
        result = forward_frame(h.forwarding, c, request, PARK_UNREAD,
                               request.length > FORWARD_BYTES_MAX)
    elif request.header.flag & RESPONSE_BIT or not is_native(request.header.code):
        result = (pop_frame(h.pops, c, request)
                  if h.pops.on and is_pop(request.header.code)
                  and not request.header.flag & RESPONSE_BIT
                  else forward_frame(h.forwarding, c, request, PARK_NOT, False))
    else:
        result = serve_natively(h, c, request, False)
        if result == HANDLE_FORWARD:
            request.passed = (request.account == NULL
                              or request.header.code != REQUEST_END_TRANSACTION)
            result = forward_native(h, c, request, True)
    return counted(h, c, id, request.length, result)


cdef int forward_native(RequestHandler* h, Connection* c, const Request* request,
                        bint body_stays) noexcept nogil:
    """It waits here until the coordinator has decided."""
    return forward_frame(h.forwarding, c, request,
                         PARK_SEND if is_send(request.header.code) else PARK_REQUEST, body_stays)


# -- other fronts ------------------------------------------------------------------------------------

cdef int ask(RequestHandler* h, Connection* c, Command* command, const uint8_t* body,
             int32_t length, bint passed) noexcept nogil:
    cdef Request request
    cdef Asker asker
    cdef int result
    if not command_end(command, body, length, &request) or request.unusual:
        connection_close(h.limits.transport, c, CLOSE_MEMORY, command.length)
        result = HANDLE_CLOSE
    elif command.has_no_code:
        result = HANDLED
        if not request.header.flag & (RESPONSE_BIT | ONEWAY_BIT):
            read_asker(&request.header, &asker)
            say(c, &asker, RESPONSE_REQUEST_CODE_NOT_SUPPORTED, "no request has that code")
    else:
        request.passed = passed
        if request.header.flag & RESPONSE_BIT or not is_native(request.header.code):
            result = forward_frame(h.forwarding, c, &request, PARK_NOT, False)
        else:
            result = forward_native(h, c, &request,
                                    request.passed or request.length > FORWARD_BYTES_MAX)
    command_close(command)
    return result


cdef int front_command(RequestHandler* h, Connection* c, Command* command, const uint8_t* body,
                       int32_t length, int64_t bytes, bint passed) noexcept nogil:
    cdef uint64_t id = c.id
    if holds_back(h, c):
        command_close(command)
        return HANDLE_WAIT
    return counted(h, c, id, bytes, ask(h, c, command, body, length, passed))


cdef int front_end(RequestHandler* h, Connection* c, const EndRequest* end,
                   int64_t bytes) noexcept nogil:
    cdef uint64_t id = c.id
    if holds_back(h, c):
        return HANDLE_WAIT
    return counted(h, c, id, bytes, serve_end(h.ends, c, end))


cdef int front_ask(RequestHandler* h, Connection* c, const SendRequest* send, const PullRequest* pull,
                   int64_t bytes, bint passed) noexcept nogil:
    cdef uint64_t id = c.id
    cdef Command command
    cdef int result = HANDLE_FORWARD
    if holds_back(h, c):
        return HANDLE_WAIT
    if passed:
        result = (serve_send(h.sends, c, send, False) if send != NULL
                  else serve_pull(h.pulls, c, pull, False))
    if result == HANDLE_FORWARD and send != NULL:
        command_of_send(&command, send)
        result = ask(h, c, &command, send.body, send.body_length, passed)
    elif result == HANDLE_FORWARD:
        command_of_pull(&command, pull)
        result = ask(h, c, &command, NULL, 0, passed)
    return counted(h, c, id, bytes, result)


cdef void redo_request(RequestHandler* h, Connection* c, const uint8_t* header, int32_t header_length,
                       bint binary, const uint8_t* body, int32_t body_length) noexcept nogil:
    cdef Request request
    cdef Asker asker
    cdef int result = HANDLE_FORWARD
    request.account = NULL             # access AR3
    if header_read(header, header_length, binary, &request.header) != HEADER_READ:
        return
    request.body = body
    request.body_length = body_length
    if is_native(request.header.code):
        result = serve_natively(h, c, &request, True)
    if result == HANDLED:
        return
    read_asker(&request.header, &asker)
    if result == HANDLE_STALL:
        say(c, &asker, RESPONSE_SYSTEM_BUSY, "[OVERLOAD]the writer is behind, try again later")
    else:
        say(c, &asker, RESPONSE_SYSTEM_ERROR,
            "the request cannot be served: its topic, group or queue changed meanwhile")
