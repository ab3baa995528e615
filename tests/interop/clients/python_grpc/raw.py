"""
Calls by gRPC, with any bytes: one JSON object a line in, one out.

in   {"method", "request": hex, "metadata": {}, "timeout": seconds}
out  {"messages": [hex], "status": number of the protocol's status}
"""
import json
import sys

import grpc

channel = grpc.insecure_channel(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    call = channel.unary_stream(
        "/apache.rocketmq.v2.MessagingService/" + asked["method"],
        request_serializer=lambda data: data, response_deserializer=lambda data: data)
    messages, status = [], 0
    try:
        for message in call(bytes.fromhex(asked["request"]), timeout=asked.get("timeout", 30),
                            metadata=list(asked["metadata"].items())):
            messages.append(message.hex())
    except grpc.RpcError as error:
        status = error.code().value[0]
    print(json.dumps({"messages": messages, "status": status}), flush=True)
