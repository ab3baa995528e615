"""Templates of requests and the native reading of responses, for the load generator."""
from libc.string cimport memcmp

from mqcore.bench.signing cimport Signing, request_sign
from mqcore.layout cimport FRAME_LENGTH_MAX
from mqcore.text cimport Literal, literal

PLACES = ("opaque_at", "born_at", "unique_at", "keys_at", "body_at", "offset_at", "offset_width",
          "ext_length_at", "half_at", "position_at")
OPAQUE_FIRST = OPAQUE_BASE                # what a template has at its opaque


cdef int template_load(RequestTemplate* target, object source) except -1:
    """Fill `target` from a Template, which has to be kept as long; see mqcore.bench.templates."""
    cdef bytes frame = source[0]
    cdef dict places = source[1]
    cdef Signing signing = source[2]
    unknown = set(places) - set(PLACES)
    if unknown:
        raise ValueError(f"template places {sorted(unknown)}: expected some of {PLACES}")
    for name, at in places.items():
        if not NOWHERE <= at < len(frame):
            raise ValueError(f"template place {name}={at}: expected 0 to {len(frame) - 1}")
    target.bytes = frame
    target.size = <int32_t>len(frame)
    target.is_binary = frame[4] == 1
    target.opaque_at = places["opaque_at"]
    target.born_at = places.get("born_at", NOWHERE)
    target.unique_at = places.get("unique_at", NOWHERE)
    target.keys_at = places.get("keys_at", NOWHERE)
    target.body_at = places.get("body_at", NOWHERE)
    target.offset_at = places.get("offset_at", NOWHERE)
    target.offset_width = places.get("offset_width", 0)
    target.ext_length_at = places.get("ext_length_at", NOWHERE)
    target.half_at = places.get("half_at", NOWHERE)
    target.position_at = places.get("position_at", NOWHERE)
    if signing is not None:
        if signing.end > len(frame):
            raise ValueError("signing: its places lie outside of the frame")
        target.signed_as = &signing.request
    return 0


cdef const uint8_t* _after(const uint8_t* text, int32_t size, Literal name) noexcept nogil:
    """The first byte behind `name` and any blanks, or NULL."""
    cdef const uint8_t* end = text + size
    cdef const uint8_t* found = <const uint8_t*>memmem(text, size, name.text, name.length)
    if found == NULL:
        return NULL
    found += name.length
    while found < end and (found[0] == c' ' or found[0] == c'"'):
        found += 1
    return found if found < end else NULL


cdef bint response_parse_slowly(
    const uint8_t* header, int32_t size, ResponseHint* hint, Response* result) noexcept nogil:
    cdef const uint8_t* end = header + size
    cdef const uint8_t* code = _after(header, size, literal('"code":'))
    cdef const uint8_t* opaque = _after(header, size, literal('"opaque":'))
    if opaque == NULL:
        return False
    result.code = <int32_t>digits_value(code, <int32_t>(end - code)) if code != NULL else 0
    result.opaque = <int32_t>digits_value(opaque, <int32_t>(end - opaque))
    hint.opaque_from_end = <int32_t>(end - opaque)
    return True


cdef int64_t response_number(
    const Response* response, Literal name, int64_t missing) noexcept nogil:
    """A numeric ext field by its name; `missing` when the response has none."""
    cdef const uint8_t* at
    cdef const uint8_t* end = response.header + response.header_size
    cdef int32_t key_size, value_size
    if not response.is_binary:
        at = _after(response.header, response.header_size, name)
        while at != NULL and at < end and (at[0] == c':' or at[0] == c'"' or at[0] == c' '):
            at += 1
        return missing if at == NULL else digits_value(at, <int32_t>(end - at))
    value_size = load_i32(response.header + 13)                # the remark
    if value_size < 0 or value_size > response.header_size - 21:
        return missing
    at = response.header + 21 + value_size
    while end - at >= 6:
        key_size = load_i16(at)
        if key_size < 0 or key_size > end - at - 6:
            return missing
        value_size = load_i32(at + 2 + key_size)
        if value_size < 0 or value_size > end - at - 6 - key_size:
            return missing
        if key_size == name.length and memcmp(at + 2, name.text, name.length) == 0:
            return digits_value(at + 6 + key_size, value_size)
        at += 6 + key_size + value_size
    return missing


cdef int32_t pull_render(
    const RequestTemplate* template, uint8_t* target, int64_t offset, int32_t slot) noexcept nogil:
    """
    Write a pull for `offset` to `target` (template.size + 20 bytes are enough); returns its size.

    The offset has as many digits as it needs, so every length around it is set again.
    """
    cdef int32_t width = 1
    cdef int64_t rest = offset // 10
    cdef int32_t tail_at = template.offset_at + template.offset_width
    cdef int32_t grown, size
    while rest:
        rest //= 10
        width += 1
    grown = width - template.offset_width
    size = template.size + grown
    memcpy(target, template.bytes, template.offset_at)
    digits_store(target + template.offset_at, offset, width)
    memcpy(target + template.offset_at + width, template.bytes + tail_at, template.size - tail_at)
    store_i32(target, size - FRAME_LENGTH_SIZE)
    store_i32(target + FRAME_LENGTH_SIZE, load_i32(template.bytes + FRAME_LENGTH_SIZE) + grown)
    if template.is_binary:
        store_i32(target + template.offset_at - 4, width)
        store_i32(target + template.ext_length_at,
                  load_i32(template.bytes + template.ext_length_at) + grown)
        store_i32(target + template.opaque_at, OPAQUE_BASE + slot)
    else:
        digits_store(
            target + template.opaque_at + (grown if template.opaque_at > tail_at else 0),
            OPAQUE_BASE + slot, OPAQUE_DIGITS)
    if template.signed_as != NULL:
        request_sign(template.signed_as, target, template.offset_at, grown)
    return size


def parse_response(bytes frame, int opaque_from_end=0) -> tuple | None:
    """
    code, opaque, body and the next hint of one whole frame; None when it is no frame.

    For tests and benchmarks of the native parser; `opaque_from_end` is the hint of an earlier call.
    """
    cdef ResponseHint hint
    cdef Response response
    hint.opaque_from_end = opaque_from_end
    if len(frame) > FRAME_LENGTH_MAX + FRAME_LENGTH_SIZE:
        return None
    if not response_parse(frame, <int32_t>len(frame), &hint, &response):
        return None
    body = (<const char*>response.body)[:response.body_size]
    return response.code, response.opaque, body, hint.opaque_from_end


def parse_many(bytes frame, int64_t count) -> int:
    """Parse the same response `count` times, as the receive loop does; returns the opaques' sum."""
    cdef ResponseHint hint
    cdef Response response
    cdef int64_t total = 0, i
    cdef const uint8_t* start = frame
    cdef int32_t size = <int32_t>len(frame)
    hint.opaque_from_end = 0
    with nogil:
        for i in range(count):
            if response_parse(start, size, &hint, &response):
                total += response.opaque
    return total


def number_in_response(bytes frame, bytes name, int64_t missing=-1) -> int:
    """The ext field `name` of a whole response frame, as pulls read theirs; for tests."""
    cdef ResponseHint hint
    cdef Response response
    hint.opaque_from_end = 0
    if not response_parse(frame, <int32_t>len(frame), &hint, &response):
        raise ValueError("the bytes are no frame")
    return response_number(&response, Literal(text=name, length=<int32_t>len(name)), missing)


def render_pull(object source, int64_t offset, int slot) -> bytes:
    """One pull made from a template; for tests."""
    cdef RequestTemplate template
    template.signed_as = NULL
    template_load(&template, source)
    target = bytearray(len(source[0]) + 20)
    size = pull_render(&template, target, offset, slot)
    return bytes(target[:size])
