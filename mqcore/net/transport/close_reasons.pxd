# Why we end a connection. 1 to 4 belong to frames (mqcore/net/remoting/frames.pxd).
cpdef enum CloseReason:
    CLOSE_PEER = 0                     # the peer did, or the socket failed
    CLOSE_IDLE = 5
    CLOSE_MEMORY = 7
    CLOSE_ASKED = 8                    # by the rooms above
    CLOSE_UNREAD = 9                   # too many answers that its peer does not read
    CLOSE_SHORT = 10                   # it held most when the memory for all was spent (memory N12)
    CLOSE_SLOW = 11                    # a frame comes too slowly
    CLOSE_LIMIT = 12                   # its address, or its account, has too many connections
    CLOSE_TLS_REFUSED = 13             # TLS, which is not to be had here
    CLOSE_PLAIN_REFUSED = 14           # plain bytes where TLS is wanted
    CLOSE_TLS_FAILED = 15              # detail: what OpenSSL says, as `trouble` tells it
    CLOSE_TLS_SLOW = 16                # a handshake takes too long
    CLOSE_TLS_CROWD = 17               # the oldest of too many handshakes
    CLOSE_TLS_EMPTY = 18               # records without data (tls TL6)
    CLOSE_HTTP2 = 20                   # its frames are none of HTTP/2, or have no purpose
    CLOSE_SILENT = 19                  # it said nothing, and its place was wanted
