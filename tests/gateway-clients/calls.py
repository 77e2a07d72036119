"""gRPC without schemas: messages are bytes.

calls.py server                          a server; prints its port
calls.py METHOD ADDRESS [CERTIFICATE]    a client; prints what it receives
"""

import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

SILENCE_S = 65
# For one call on a busy machine.
PATIENCE_S = 200
was_cancelled = threading.Event()


def unary(request, context):
    sent = dict(context.invocation_metadata())
    context.send_initial_metadata([("initial", sent["question"])])
    context.set_trailing_metadata([("trailing-bin", b"\x00\xff" + request)])
    # The client's deadline has arrived.
    assert 0 < context.time_remaining() <= PATIENCE_S, context.time_remaining()
    return request.upper()


def error(request, context):
    context.set_trailing_metadata([("grpc-status-details-bin", b"\x08\x09\x00")])
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "100 % größer\nthan " + request.decode())


def error_after_messages(request, context):
    yield request
    error(request, context)


def silent(request, context):
    yield b"one"
    time.sleep(SILENCE_S)
    yield b"two"


def both(requests, context):
    for request in requests:
        yield request.upper()
    context.set_trailing_metadata([("end", "both")])


def endless(request, context):
    was_cancelled.clear()
    context.add_callback(was_cancelled.set)
    was_cancelled.wait(PATIENCE_S)
    return b""


def cancelled(request, context):
    return b"yes" if was_cancelled.wait(PATIENCE_S) else b"no"


def serve():
    handlers = {
        "unary": grpc.unary_unary_rpc_method_handler(unary),
        "error": grpc.unary_unary_rpc_method_handler(error),
        "error_after_messages": grpc.unary_stream_rpc_method_handler(error_after_messages),
        "silent": grpc.unary_stream_rpc_method_handler(silent),
        "both": grpc.stream_stream_rpc_method_handler(both),
        "endless": grpc.unary_unary_rpc_method_handler(endless),
        "cancelled": grpc.unary_unary_rpc_method_handler(cancelled),
    }
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", handlers)])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


def call_unary(channel):
    call = channel.unary_unary("/test/unary")
    response, end = call.with_call(b"abc", timeout=PATIENCE_S, metadata=[("question", "why")])
    print(response, dict(end.initial_metadata())["initial"], dict(end.trailing_metadata())["trailing-bin"])


def show_error(failure):
    details = dict(failure.trailing_metadata()).get("grpc-status-details-bin")
    print(failure.code().name, ascii(failure.details()), details)


def call_error(channel):
    try:
        channel.unary_unary("/test/error")(b"abc", timeout=PATIENCE_S)
    except grpc.RpcError as failure:
        show_error(failure)
    try:
        for message in channel.unary_stream("/test/error_after_messages")(b"abc", timeout=PATIENCE_S):
            print(message)
    except grpc.RpcError as failure:
        show_error(failure)


def call_silent(channel):
    for message in channel.unary_stream("/test/silent")(b"", timeout=PATIENCE_S):
        print(message)


def call_both(channel):
    """Sends each message after the response to the one before."""
    requests = queue.SimpleQueue()
    responses = channel.stream_stream("/test/both")(iter(requests.get, None), timeout=PATIENCE_S)
    for request in [b"a", b"b" * 100_000, b"c"]:
        requests.put(request)
        print(next(responses) == request.upper())
    requests.put(None)
    print(list(responses), dict(responses.trailing_metadata())["end"])


def call_endless(channel):
    """Its deadline passes, and the server sees the end of the call."""
    try:
        channel.unary_unary("/test/endless")(b"", timeout=2)
    except grpc.RpcError as failure:
        print(failure.code().name)
    print(channel.unary_unary("/test/cancelled")(b"", timeout=PATIENCE_S))


def main():
    method, *where = sys.argv[1:]
    if method == "server":
        return serve()
    if len(where) == 1:
        channel = grpc.insecure_channel(where[0])
    else:
        with open(where[1], "rb") as file:
            channel = grpc.secure_channel(where[0], grpc.ssl_channel_credentials(file.read()))
    with channel:
        globals()[f"call_{method}"](channel)


main()
