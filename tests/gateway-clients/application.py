"""A WSGI application for gunicorn."""

import time
from urllib.parse import parse_qs


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/events":
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        return events(float(parse_qs(environ["QUERY_STRING"])["silence"][0]))
    if path == "/upload":
        body = b"%d bytes" % len(environ["wsgi.input"].read())
    elif path == "/download":
        body = b"x" * int(parse_qs(environ["QUERY_STRING"])["size"][0])
    else:
        body = b"fine"
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def events(silence):
    yield b"data: one\n\n"
    time.sleep(silence)
    yield b"data: two\n\n"
