/* Log: when each request was read, and when its response was written. */
#ifndef LOG_H
#define LOG_H

#include <stdint.h>

#include "response.h"

struct record {
    uint64_t connection; /* serial number of the connection, from 1 */
    enum outcome outcome;
    int64_t arrived_ns;  /* arrival of its last packet, by the kernel */
    int64_t read_ns;     /* just after the read that completed the request */
    int64_t written_ns;  /* just before the write of the last byte of the response; 0 without one */
};

/* Touches the memory of the whole log, so that no page fault disturbs the timing. */
void log_prepare(void);

/* Adds a record. A full log ends the server. */
struct record *log_request(uint64_t connection, int64_t arrived_ns, int64_t read_ns);

/* Returns the number of requests read. */
uint64_t log_length(void);

/* Writes a line `CONNECTION OUTCOME ARRIVED_NS READ_NS WRITTEN_NS` for each request, in the order of reading. */
void log_write(const char *path);

#endif
