"""A WebSocket server. Prints its port, then for each connection the code and reason of its end."""

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve


def echo(connection):
    try:
        while True:
            connection.send(connection.recv())
    except ConnectionClosed as end:
        received = end.rcvd
        print(f"{received.code} {received.reason}" if received else "not closed", flush=True)


with serve(echo, "127.0.0.1", 0) as server:
    print(server.socket.getsockname()[1], flush=True)
    server.serve_forever()
