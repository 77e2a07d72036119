/* One connection: requests are read into a queue, and answered from it in their order. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "answer.h"
#include "log.h"

#define MAX_CONNECTIONS 1024
#define MAX_PENDING 64        /* requests that one connection may have waiting */
#define MAX_REQUEST_BYTES 8192

struct pending {
    struct answer answer;
    struct record *record;
};

struct connection {
    int fd;                   /* -1 where there is no connection */
    uint64_t serial;
    uint64_t requests;
    bool closing;             /* this side is shut; what still comes is ignored */
    bool waits_for_room;      /* the socket took no more */
    int64_t due_ns;
    size_t due_place;         /* where it stands among the due ones; 0 if nowhere */
    int64_t written_ns;       /* when the answer before was written */
    size_t sent;              /* bytes of the first pending answer */
    size_t first, count;      /* the ring of pending requests */
    struct pending pending[MAX_PENDING];
    size_t received;
    char input[MAX_REQUEST_BYTES];
};

/* Takes over an accepted socket. */
void connection_open(int epoll, int fd);

/* Reads what has come; a request that can be answered at once is. */
void connection_read(struct connection *connection);

/* Writes what is due. */
void connection_write(struct connection *connection);

#endif
