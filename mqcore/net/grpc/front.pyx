"""The gRPC front of a serving process, and its loop."""
import os

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy

from mqcore.atomics cimport load_i32_acquire
from mqcore.layout cimport PROPERTIES_LENGTH_MAX
from mqcore.net.grpc.acks cimport serve_ack, serve_change
from mqcore.net.grpc.answers cimport call_end, call_say
from mqcore.net.grpc.asking cimport ask, said_remark
from mqcore.net.grpc.authorization cimport authorize
from mqcore.net.grpc.calls cimport LEAVING_MAX, REMARK_MAX, Grpc, say_status, say_status_bytes
from mqcore.net.grpc.dead_letters cimport (
    dead_letter_told,
    dead_letters_forget,
    dead_letters_open,
    serve_forward,
)
from mqcore.net.nghttp2 cimport nghttp2
from mqcore.net.grpc.methods cimport (
    METHOD_ACK_MESSAGE,
    METHOD_CHANGE_INVISIBLE,
    METHOD_END_TRANSACTION,
    METHOD_FORWARD_TO_DEAD_LETTERS,
    METHOD_HEARTBEAT,
    METHOD_NOTIFY_TERMINATION,
    METHOD_PULL_MESSAGE,
    METHOD_RECALL_MESSAGE,
    METHOD_RECEIVE_MESSAGE,
    METHOD_SEND_MESSAGE,
    METHOD_TELEMETRY,
    STATUS_CLIENT_ID_REQUIRED,
    STATUS_HA_NOT_AVAILABLE,
    STATUS_OK,
    STATUS_UNAUTHORIZED,
    method_of,
    method_streams,
    status_of,
)
from mqcore.net.grpc.links cimport links_wait
from mqcore.net.grpc.protobuf cimport PbReader, pb_inside, pb_next, pb_open
from mqcore.net.grpc.remote_answers cimport link_gone
from mqcore.net.grpc.remoting cimport remote_told
from mqcore.net.grpc.pulls cimport answer_pull_message, pull_told, serve_pull_message
from mqcore.net.grpc.recalls cimport recall_told, serve_recall
from mqcore.net.grpc.receives cimport pair_told, refuse_receive, serve_receive
from mqcore.net.grpc.sends cimport answer_send, serve_send_message
from mqcore.net.grpc.session cimport (
    call_answered,
    door_open,
    door_pump,
    session_bytes,
    session_call,
    session_end,
    session_goodbye,
    session_of,
)
from mqcore.net.grpc.streams cimport (
    CLIENT_ID_MAX,
    GRPC_INVALID_ARGUMENT,
    GRPC_PERMISSION_DENIED,
    GRPC_UNAUTHENTICATED,
    Call,
    Session,
)
from mqcore.net.remoting.command cimport Said, said_read
from mqcore.net.remoting.frames cimport RESPONSE_BIT
from mqcore.net.requests cimport (
    HANDLED,
    HANDLE_DENIED,
    HANDLE_FORWARD,
    HANDLE_STALL,
    HANDLE_WAIT,
    Asker,
    Front,
    PullAnswer,
    SendAnswer,
)
from mqcore.net.serving.handler cimport front_refused
from mqcore.net.serving.loop cimport KIND_OTHER, ServingLoop
from mqcore.net.transport.loop cimport transport_listen
from mqcore.net.transport.transport cimport Connection
from mqcore.shm.access cimport access_is_on
from mqcore.store.pop.handles cimport HANDLE_BROKER_MAX
from mqcore.store.pop.state cimport NO_CLIENT
from mqcore.wire.codes cimport (
    REQUEST_CHECK_TRANSACTION_STATE,
    REQUEST_CONSUME_MESSAGE_DIRECTLY,
    REQUEST_GET_CONSUMER_RUNNING_INFO,
    REQUEST_GRPC_CALL,
    RESPONSE_NO_PERMISSION,
    RESPONSE_SUCCESS,
    RESPONSE_SYSTEM_BUSY,
)
from mqcore.net.grpc.questions cimport ask_for_stacks, ask_to_consume
from mqcore.net.grpc.transactions cimport ask_producer, serve_end_transaction
from mqcore.net.grpc.turns cimport (
    LEAVE_MS,
    TERMINATED_MS,
    give_up_first,
    pops_close,
    pops_open,
    pops_turn,
    queue_arrived,
    receive_gone,
)

cdef enum:
    NOTE_ROLE = 0                      # Call.notes of Telemetry
    TELEMETRY_SETTINGS = 2             # fields of messages
    SETTINGS_PUBLISHING = 5
    SETTINGS_SUBSCRIPTION = 6
    MESSAGE_EXTRA = 256 << 10          # of a request beside its message's body


# -- answers -----------------------------------------------------------------------------------------

cdef void say(void* self, Connection* c, const Asker* asker, int32_t code,
              const char* remark) noexcept nogil:
    cdef Call* call
    if asker.opaque < 0:
        dead_letter_told(<Grpc*>self, asker.opaque, code)
        return
    if c.fd < 0:
        remote_told(<Grpc*>self, c, asker.opaque, NULL)
        return
    call = session_call(c, asker.opaque)
    if call != NULL:                                                     # GF1
        say_status(<Grpc*>self, call, status_of(code), remark)
        if method_streams(call.method):
            call_answered(call)


cdef void say_sent(void* self, Connection* c, const SendAnswer* answer) noexcept nogil:
    cdef Call* call = session_call(c, answer.asker.opaque)
    if call != NULL:
        answer_send(<Grpc*>self, call, answer)


cdef void say_pulled(void* self, Connection* c, const PullAnswer* answer) noexcept nogil:
    cdef Call* call = session_call(c, answer.asker.opaque)
    if call != NULL:
        answer_pull_message(<Grpc*>self, call, answer)


cdef Call* telemetry_of(const Connection* c, int32_t role) noexcept nogil:
    """GF4. role: a field of Settings that its client gave, 0: any."""
    cdef Session* s = session_of(c)
    cdef Call* call = s.calls if s != NULL else NULL
    while call != NULL and (call.method != METHOD_TELEMETRY or call.done or (
            role != 0 and call.notes[NOTE_ROLE] != role)):
        call = call.after
    return call


cdef int32_t role_in(const uint8_t* message, int64_t length) noexcept nogil:
    """SETTINGS_PUBLISHING or SETTINGS_SUBSCRIPTION; 0: no settings, or neither."""
    cdef PbReader r, inner
    pb_open(&r, message, length)
    while pb_next(&r):
        if r.number != TELEMETRY_SETTINGS:
            continue
        inner = pb_inside(&r)
        while pb_next(&inner):
            if inner.number == SETTINGS_PUBLISHING or inner.number == SETTINGS_SUBSCRIPTION:
                return inner.number
    return 0


cdef bint is_shared(const Connection* c, const Call* call) noexcept nogil:
    """Whether another client than the call's has a stream of Telemetry on the connection (GF5)."""
    cdef Session* s = session_of(c)
    cdef Call* other = s.calls if s != NULL else NULL
    while other != NULL:
        if other.method == METHOD_TELEMETRY and not other.done and (
                other.client_id_length != call.client_id_length or memcmp(
                    other.client_id, call.client_id, call.client_id_length) != 0):
            return True
        other = other.after
    return False


cdef int32_t role_asked(int32_t code) noexcept nogil:
    if code == REQUEST_CHECK_TRANSACTION_STATE:
        return SETTINGS_PUBLISHING
    return 0 if code == REQUEST_GRPC_CALL else SETTINGS_SUBSCRIPTION


cdef void say_refusal(Grpc* g, Call* call, const Said* said) noexcept nogil:
    cdef uint8_t remark[REMARK_MAX]
    if call.method == METHOD_TELEMETRY and said.header.code == RESPONSE_NO_PERMISSION:
        call_end(call, GRPC_PERMISSION_DENIED, "the account has no permission for what the settings name")
        return
    if call.method == METHOD_TELEMETRY and said.header.code != RESPONSE_SYSTEM_BUSY:
        call_end(call, GRPC_INVALID_ARGUMENT, "the settings are not taken")
        return
    say_status_bytes(g, call, status_of(said.header.code), remark, said_remark(said, remark))
    if method_streams(call.method):
        call_answered(call)


cdef void say_frame(void* self, Connection* c, const uint8_t* frame, int64_t length) noexcept nogil:
    cdef Grpc* g = <Grpc*>self
    cdef Said said
    cdef Call* call
    if not said_read(frame, length, &said):
        return
    if not said.header.flag & RESPONSE_BIT:
        call = telemetry_of(c, role_asked(said.header.code))
        if call != NULL and said.header.code == REQUEST_GRPC_CALL:
            call_say(call, said.body, said.body_length, False)
        elif call != NULL and said.header.code == REQUEST_CHECK_TRANSACTION_STATE:
            ask_producer(g, call, &said)
        elif call != NULL and said.header.code == REQUEST_GET_CONSUMER_RUNNING_INFO:
            ask_for_stacks(g, call, &said)
        elif call != NULL and said.header.code == REQUEST_CONSUME_MESSAGE_DIRECTLY:
            ask_to_consume(g, call, &said)
        return
    if said.header.opaque < 0:
        dead_letter_told(g, said.header.opaque, said.header.code)
        return
    if c.fd < 0:
        remote_told(g, c, said.header.opaque, &said)
        return
    call = session_call(c, said.header.opaque)
    if call == NULL:
        return
    if call.method == METHOD_RECEIVE_MESSAGE and said.header.code == RESPONSE_SUCCESS:
        pair_told(g, c, call, &said)
        return
    if call.method == METHOD_PULL_MESSAGE:
        pull_told(g, call, &said)
        return
    if call.method == METHOD_RECALL_MESSAGE and said.header.code == RESPONSE_SUCCESS:
        recall_told(g, call, &said)
        return
    if said.header.code != RESPONSE_SUCCESS:
        say_refusal(g, call, &said)
    elif said.body_length == 0 and not method_streams(call.method):     # a command of remoting's own
        say_status(g, call, status_of(RESPONSE_SUCCESS), "OK")
    else:
        if said.body_length > 0:
            call_say(call, said.body, said.body_length, not method_streams(call.method))
        if method_streams(call.method):
            call_answered(call)


# -- requests ----------------------------------------------------------------------------------------

cdef int say_denied(Grpc* g, Connection* c, Call* call, int64_t bytes, int how) noexcept nogil:
    """bytes: of the request; how: a GrpcStatus, for a call that streams."""
    front_refused(g.handler, c, bytes, call.method == METHOD_SEND_MESSAGE)
    if method_streams(call.method):
        call_end(call, how, g.denied)
    elif call.method == METHOD_RECEIVE_MESSAGE:
        refuse_receive(g, call, STATUS_UNAUTHORIZED, g.denied)
    else:
        say_status(g, call, STATUS_UNAUTHORIZED, g.denied)
    return HANDLED


cdef int serve(void* top, Connection* c, Call* call, const uint8_t* message,
               int64_t length) noexcept nogil:
    cdef Grpc* g = <Grpc*>top
    cdef int result
    if not 0 < call.client_id_length <= CLIENT_ID_MAX:                   # GF2
        say_status(g, call, STATUS_CLIENT_ID_REQUIRED,
                   "x-mq-client-id: expected 1 to 255 characters")
        if method_streams(call.method):
            call_end(call, GRPC_INVALID_ARGUMENT, "x-mq-client-id is missing")
        return HANDLED
    result = authorize(g, c, call)
    if result == HANDLE_DENIED:
        return say_denied(g, c, call, length, GRPC_UNAUTHENTICATED)
    if result != HANDLE_FORWARD:
        return result
    if g.handler.sends.appends.slave and call.method != METHOD_TELEMETRY and (
            call.method != METHOD_HEARTBEAT):
        say_status(g, call, STATUS_HA_NOT_AVAILABLE,
                   "service not available now: this broker follows another one")
        return HANDLED
    if call.method == METHOD_TELEMETRY:
        return serve_telemetry(g, c, call, message, length)
    result = serve_method(g, c, call, message, length)
    return say_denied(g, c, call, length, GRPC_PERMISSION_DENIED) if result == HANDLE_DENIED else result


cdef int serve_telemetry(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                         int64_t length) noexcept nogil:
    cdef int result
    cdef int32_t role = role_in(message, length)
    if role != 0:
        call.notes[NOTE_ROLE] = role
    call.unanswered += 1
    result = ask(g, c, call, message, length)
    if result == HANDLE_WAIT or result == HANDLE_STALL:      # it comes again
        call.unanswered -= 1
    return result


cdef int serve_method(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                      int64_t length) noexcept nogil:
    if call.method == METHOD_SEND_MESSAGE:
        return serve_send_message(g, c, call, message, length)
    if call.method == METHOD_RECEIVE_MESSAGE:
        return serve_receive(g, c, call, message, length)
    if call.method == METHOD_ACK_MESSAGE:
        return serve_ack(g, c, call, message, length)
    if call.method == METHOD_CHANGE_INVISIBLE:
        return serve_change(g, c, call, message, length)
    if call.method == METHOD_END_TRANSACTION:
        return serve_end_transaction(g, c, call, message, length)
    if call.method == METHOD_FORWARD_TO_DEAD_LETTERS:
        return serve_forward(g, c, call, message, length)
    if call.method == METHOD_RECALL_MESSAGE:
        return serve_recall(g, c, call, message, length)
    if call.method == METHOD_PULL_MESSAGE:
        return serve_pull_message(g, c, call, message, length)
    if call.method == METHOD_NOTIFY_TERMINATION:
        if is_shared(c, call):
            say_status(g, call, STATUS_OK, "OK")
            return HANDLED
        client_leaves(g, c, TERMINATED_MS)
    return ask(g, c, call, message, length)


cdef void gone(void* top, Call* call) noexcept nogil:
    receive_gone(call)


cdef int64_t bytes_came(void* self, Connection* c, uint8_t* data, int64_t length) noexcept nogil:
    return session_bytes(&(<Grpc*>self).door, c, data, length)


cdef void closing(void* self, Connection* c) noexcept nogil:
    client_leaves(<Grpc*>self, c, LEAVE_MS)
    dead_letters_forget(<Grpc*>self, c)
    session_end(c)
    link_gone(<Grpc*>self, c)


cdef void client_leaves(Grpc* g, const Connection* c, int32_t after_ms) noexcept nogil:
    """Its messages are visible then; it may come back by another connection before."""
    cdef Session* s = session_of(c)
    if s == NULL or s.pop_client == NO_CLIENT:
        return
    if g.leaving_count == LEAVING_MAX:
        give_up_first(g)
    g.leaving[g.leaving_count].client = s.pop_client
    g.leaving[g.leaving_count].until_ms = g.door.transport.steady_ms + after_ms
    g.leaving_count += 1
    g.leave_ms = min(g.leave_ms, g.door.transport.steady_ms + after_ms)
    s.pop_client = NO_CLIENT


cdef int64_t turn_ends(void* self) noexcept nogil:
    cdef Grpc* g = <Grpc*>self
    pops_turn(g)
    door_pump(&g.door)
    return g.due_ms


cdef bint something_waits(void* self) noexcept nogil:
    return links_wait(<Grpc*>self)


cdef class GrpcLoop(ServingLoop):
    """
    A serving loop whose listeners are for clients that speak gRPC: `listen`, then as ServingLoop.
    Raises Nghttp2Error where the library is missing.
    """

    def listen(self, list listeners, int32_t body_bytes_max, *, str broker_name, str boot,
               bytes journal) -> None:
        """
        Connections to these sockets are HTTP/2. boot: id of the machine's boot; journal: path of
        config/popState. Raises OSError, Nghttp2Error, MemoryError.
        """
        cdef Grpc* g = &self.grpc
        cdef bytes raw = broker_name.encode()
        cdef bytes id = boot.encode()
        g.door.transport = &self.s.transport
        if listeners:
            g.door.library = nghttp2()
        g.door.top = g
        g.door.method_of = method_of
        g.door.streams = method_streams
        g.door.serve = serve
        g.door.gone = gone
        g.handler = &self.s.handler
        g.door.keeps_credentials = access_is_on(&self.s.guard.access)
        g.access_seen = load_i32_acquire(&self.s.shm.head.access_sequence)
        g.shm = self.s.shm
        g.reader = &self.s.reader
        g.wants = &self.s.wants
        g.commits = &self.s.offset_commits
        g.interest = self.s.held.interest
        g.broker_name_length = <int32_t>min(len(raw), HANDLE_BROKER_MAX)
        memcpy(g.broker_name, <const char*>raw, g.broker_name_length)
        memcpy(g.boot, <const char*>id, min(len(id), 36))
        dead_letters_open(g)
        g.properties = <uint8_t*>malloc(PROPERTIES_LENGTH_MAX + 1)
        if g.properties == NULL or (listeners and not door_open(
                &g.door, self.s.transport.connection_max)):
            raise MemoryError
        if not pops_open(g, journal):
            raise MemoryError
        if g.journal_error:
            raise OSError(g.journal_error, "the state of receives", os.fsdecode(journal))
        self.s.held.other = g
        self.s.held.arrived = queue_arrived
        self.take_body_max(body_bytes_max)
        self.s.fronts[KIND_OTHER] = Front(
            self=g, bytes_came=bytes_came, say_sent=say_sent, say_pulled=say_pulled, say=say,
            say_frame=say_frame, closing=closing, turn_ends=turn_ends, waits=something_waits)
        g.front = &self.s.fronts[KIND_OTHER]
        for listener in listeners:
            if not transport_listen(&self.s.transport, listener.fileno(), KIND_OTHER):
                raise OSError("epoll")
            self.listeners.append((listener, False))

    def take_body_max(self, int32_t body_bytes_max) -> None:
        """store.message_size_max_bytes, which can change while it runs."""
        self.grpc.body_max = body_bytes_max
        self.grpc.door.message_max = <int64_t>body_bytes_max + MESSAGE_EXTRA

    def goodbye(self) -> None:
        """Each client hears that this process ends, and opens its next calls elsewhere."""
        cdef int32_t i
        for i in range(self.s.transport.connection_max):
            if self.s.transport.connections[i] != NULL:
                session_goodbye(self.s.transport.connections[i])
        door_pump(&self.grpc.door)

    def journal_error(self) -> int:
        """errno of a write of config/popState that has failed since the last call; 0: none has."""
        cdef int error = self.grpc.journal_failed
        self.grpc.journal_failed = 0
        return error

    def close(self) -> None:
        """The state of receives is in its file."""
        pops_close(&self.grpc)
