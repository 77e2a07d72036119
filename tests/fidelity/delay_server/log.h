/* The truth: when each request was read, and when its answer was written. */
#ifndef LOG_H
#define LOG_H

#include <stdint.h>

#include "answer.h"

struct record {
    uint64_t connection; /* serial number of the connection, from 1 */
    enum fate fate;
    int64_t read_ns;     /* just after the read that completed the request */
    int64_t written_ns;  /* just before the write of the answer's last byte; 0 if there was none */
};

/* Takes the memory for the whole log, so that no page is missing while the server is timed. */
void log_prepare(void);

/* A new record. A full log ends the server. */
struct record *log_request(uint64_t connection, int64_t read_ns);

/* How many requests have been read. */
uint64_t log_length(void);

/* Writes a line `CONNECTION FATE READ_NS WRITTEN_NS` for every request, in the order of reading. */
void log_write(const char *path);

#endif
