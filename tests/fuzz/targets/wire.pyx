"""What clients write into frames: headers, long JSON texts, properties, tags."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from mqcore.net.identity cimport Identity
from mqcore.net.remoting.frames cimport Request
from mqcore.net.remoting.headers cimport read_end, read_pull, read_send
from mqcore.net.requests cimport EndRequest, PullRequest, SendRequest
from mqcore.net.serving.properties cimport (
    DETOUR_HALF,
    REAL_PLACE_MAX,
    PropertyNotes,
    add_real_place,
    write_properties,
)
from mqcore.store.record cimport PropertyItem, java_hash, property_next, property_number, tag_code
from mqcore.wire.bare_keys cimport BARE_KEY_GROWTH, quote_keys
from mqcore.wire.check_header cimport CHECK_HEADER_ROOM, CheckedMessage, put_check_header
from mqcore.wire.header cimport FIELD_COUNT, HEADER_READ, Header, Text, header_read, text_copy
from mqcore.wire.json_cut cimport CUT_CLOSES, CUT_ENDS, CUT_NOWHERE, CUT_OPENS, Cut, next_cut

from tests.fuzz.targets.input cimport Input, hold, input_of, take_byte, take_i32


cdef bint lies_in(const uint8_t* at, int64_t length, const uint8_t* data, size_t size) noexcept nogil:
    return data <= at and length <= <int64_t>size - (at - data)


cdef void look_at_fields(const Header* header, const uint8_t* data, size_t size) noexcept nogil:
    cdef int32_t i, length
    cdef uint8_t* copy
    for i in range(FIELD_COUNT):
        if header.fields[i].length < 0:
            continue
        hold(lies_in(header.fields[i].start, header.fields[i].length, data, size),
             "a field lies in its header")
        copy = <uint8_t*>malloc(header.fields[i].length)
        length = text_copy(&header.fields[i], copy, header.fields[i].length)
        hold(length <= header.fields[i].length, "what is unescaped never grows")
        free(copy)


cdef int one_header(const uint8_t* data, size_t size, bint binary) noexcept nogil:
    cdef Request request
    cdef SendRequest send
    cdef PullRequest pull
    cdef EndRequest end
    if header_read(data, <int32_t>size, binary, &request.header) != HEADER_READ:
        return 0
    look_at_fields(&request.header, data, size)
    request.body = data
    request.body_length = 0
    read_send(&request, &send)
    read_pull(&request, &pull)
    read_end(&request, &end)
    return 0


cdef int json_header(const uint8_t* data, size_t size) noexcept nogil:
    return one_header(data, size, False)


cdef int binary_header(const uint8_t* data, size_t size) noexcept nogil:
    return one_header(data, size, True)


cdef int json_text(const uint8_t* data, size_t size) noexcept nogil:
    """Cut as the coordinator cuts a long one, and its bare keys quoted."""
    cdef Input left = input_of(data, size)
    cdef size_t wanted = 1 + take_byte(&left)
    cdef size_t at = take_byte(&left), length = <size_t>left.left, steps = 0
    cdef uint8_t* quoted = <uint8_t*>malloc((1 + BARE_KEY_GROWTH) * (length // 3 + 1) + length)
    cdef size_t written = quote_keys(data, length, quoted, 0)
    cdef Cut cut
    hold(length <= written, "quoting takes nothing away")
    free(quoted)
    while at < length:
        cut = next_cut(data, at, length, wanted, 4 * wanted)
        if cut.how == CUT_NOWHERE:
            break
        hold(at <= cut.place < length, "a cut lies before the end of the text")
        hold((cut.how == CUT_ENDS and data[cut.place] == c',')
             or (cut.how == CUT_CLOSES and data[cut.place] in (c'}', c']'))
             or (cut.how == CUT_OPENS and data[cut.place] in (c'{', c'[')), "a cut lies at its mark")
        at = cut.place + 1
        steps += 1
        hold(steps <= length, "cutting goes on")
    return 0


cdef int properties(const uint8_t* data, size_t size) noexcept nogil:
    """A send's, written as they are stored, and read again."""
    cdef Input left = input_of(data, size)
    cdef int32_t levels = take_byte(&left) & 31
    cdef int32_t detour = take_byte(&left) % (DETOUR_HALF + 1)
    cdef bint escaped = take_byte(&left) & 1
    cdef int32_t room = <int32_t>left.left + 16 + 1
    cdef uint8_t* into = <uint8_t*>malloc(room + REAL_PLACE_MAX)
    cdef Text text = Text(start=data, length=<int32_t>left.left, escaped=escaped)
    cdef Identity identity
    cdef PropertyNotes notes
    cdef PropertyItem item
    cdef const uint8_t* at = into
    cdef int64_t number
    cdef int32_t length
    identity.cluster_property_length = 16
    memcpy(identity.cluster_property, b"CLUSTER\x01default\x00", 16)
    length = write_properties(&identity, levels, &text, into, room, detour, &notes)
    if length >= 0:
        hold(length <= room, "properties grow by the cluster alone")
        if detour:
            length = add_real_place(into, length, data, min(text.length, 127), take_i32(&left))
        while property_next(&at, into + length, &item):
            hold(lies_in(item.key, item.key_length, into, length)
                 and lies_in(item.value, item.value_length, into, length)
                 and item.key_length > 0 and item.value_length > 0, "an item lies in its properties")
            property_number(&item, &number)
    free(into)
    return 0


cdef int tags(const uint8_t* data, size_t size) noexcept nogil:
    """The code of TAGS is that of its parts, one behind the other; and a question's header."""
    cdef Input left = input_of(data, size)
    cdef int32_t half = take_byte(&left)
    cdef int32_t length = <int32_t>left.left
    cdef uint8_t* header = <uint8_t*>malloc(CHECK_HEADER_ROOM + 12 * length)
    cdef uint8_t* end
    cdef CheckedMessage message = CheckedMessage(
        log_position=length, queue_offset=half, store_host=b"\x7f\x00\x00\x01\x00\x00\x2a\x9f",
        store_host_size=8, unique_key=data, unique_key_length=length)
    half = min(half, length)
    while half < length and (data[half] & 0xC0) == 0x80:
        half += 1
    hold(<int32_t>tag_code(data, length)
         == java_hash(data + half, length - half, java_hash(data, half, 0)), "a hash goes on")
    end = put_check_header(header, &message, half)
    hold(end - header <= CHECK_HEADER_ROOM + 12 * length, "a question's header has its room")
    free(header)
    return 0


TARGETS = {
    "json_header": <size_t>&json_header, "binary_header": <size_t>&binary_header,
    "json_text": <size_t>&json_text, "properties": <size_t>&properties, "tags": <size_t>&tags,
}
