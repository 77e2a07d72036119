/* One connection: a queue of requests, and their responses in order. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "response.h"
#include "log.h"

#define MAX_CONNECTIONS 1024
#define MAX_PENDING 64        /* requests waiting on one connection */
#define MAX_REQUEST_BYTES 8192

struct pending {
    struct response response;
    struct record *record;
};

struct connection {
    int fd;                   /* -1: unused */
    uint64_t serial;
    uint64_t requests;
    bool closing;             /* this side is shut down; further requests are ignored */
    bool waits_for_room;      /* the send buffer of the socket is full */
    int64_t due_ns;
    size_t heap_index;        /* index in the timer heap; 0: no timer */
    int64_t written_ns;       /* time of the last response */
    size_t sent;              /* bytes sent of the first pending response */
    size_t first, count;      /* the ring of pending requests */
    struct pending pending[MAX_PENDING];
    size_t received;
    char input[MAX_REQUEST_BYTES];
};

/* Adds an accepted socket. */
void connection_open(int epoll, int fd);

/* Reads requests and sets the timer of the first response. */
void connection_read(struct connection *connection);

/* Writes the response whose timer has expired. */
void connection_write(struct connection *connection);

#endif
