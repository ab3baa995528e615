# The front of RocketMQ 5's clients: gRPC calls that send are served by the native functions that
# serve remoting's; the others are asked of the coordinator (broker/requests/grpc.py).
#
#   GF1  An answer finds its call by the stream's number, which is the opaque of what was asked. A call
#        that has ended meanwhile is passed over.
#   GF2  Every request has a client id (grpc.md 1.6); the front believes no id to be anybody's but its
#        connection's.
#   GF3  A refusal is a Status in the method's own response. Only what no application should hear of
#        ends with a status of the protocol: unknown methods, messages that are none.
#   GF4  A stream of Telemetry is remembered by its connection: what the coordinator says by itself
#        goes there, or is dropped where there is none. A question for a producer goes to a producer's.
#   GF5  Several clients of a process may share a connection, as those of Node and Python do: the end of
#        one client takes nothing from the others.
from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.serving.loop cimport ServingLoop

cdef class GrpcLoop(ServingLoop):
    cdef Grpc grpc
