/* What a request is answered with, chosen by its path. */
#ifndef ANSWER_H
#define ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What becomes of a request; the letter stands in the log. */
enum fate {
    FATE_ANSWERED = 'a',
    FATE_MALFORMED = 'm', /* bytes that are no answer */
    FATE_CLOSED = 'c',    /* the connection is closed before the answer is whole */
    FATE_RESET = 'r',     /* the connection is reset instead of an answer */
    FATE_SILENT = 's',    /* nothing is ever sent */
    FATE_ENDLESS = 'e',   /* an answer that has no end */
    FATE_IGNORED = 'i',   /* read after the server had closed its side */
};

/* What happens to the connection once the bytes are sent. */
enum end { END_KEEP, END_CLOSE, END_RESET };

struct answer {
    enum fate fate;
    enum end end;
    const char *bytes;   /* sent once */
    size_t length;
    const char *filler;  /* then sent again and again; NULL for an answer that ends */
    int64_t delay_ns;    /* how long the answer waits */
    bool in_turn;        /* the wait runs from the answer before it, not from the reading */
    int64_t pause_ns;    /* between single bytes; 0 sends the bytes at once */
};

/* Seeds what random delays are drawn from. */
void answer_seed(uint64_t seed);

/* The answer to the request number `number` of the server (from 0), which is the `nth` of its
 * connection (from 1). A path that stands for nothing ends the server: the test is wrong. */
struct answer answer_of(const char *path, uint64_t number, uint64_t nth);

#endif
