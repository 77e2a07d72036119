/* The response to a request, selected by its path. */
#ifndef RESPONSE_H
#define RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Outcome of a request, and its letter in the log. */
enum outcome {
    OUTCOME_RESPONDED = 'a',
    OUTCOME_MALFORMED = 'm', /* not a valid response */
    OUTCOME_CLOSED = 'c',    /* closed before the end of the response */
    OUTCOME_RESET = 'r',     /* reset instead of a response */
    OUTCOME_SILENT = 's',    /* no response */
    OUTCOME_ENDLESS = 'e',   /* a response without an end */
    OUTCOME_IGNORED = 'i',   /* read after the server has closed its side */
};

/* What happens to the connection after the bytes. */
enum end { END_KEEP, END_CLOSE, END_RESET };

struct response {
    enum outcome outcome;
    enum end end;
    const char *bytes;   /* sent once */
    size_t length;
    const char *filler;  /* then repeated without end; NULL: none */
    int64_t delay_ns;    /* from the request to the response */
    bool in_turn;        /* the delay starts at the last response instead */
    int64_t pause_ns;    /* between single bytes; 0: all bytes at once */
};

/* Seeds the random delays. */
void response_seed(uint64_t seed);

/* Returns the response to request `number` of the server (from 0), the `nth` of its connection (from
 * 1). An unknown path ends the server: the test is wrong. */
struct response response_for(const char *path, uint64_t number, uint64_t nth);

#endif
