/* Timers of connections: a binary heap, in which each connection knows its index. */
#ifndef TIMERS_H
#define TIMERS_H

#include <stdint.h>

struct connection;

/* Sets the timer of a connection that has none. */
void timer_set(struct connection *connection, int64_t at_ns);

/* Cancels the timer of a connection, if it has one. */
void timer_cancel(struct connection *connection);

/* Returns the connection whose timer expires first, or NULL. */
struct connection *timer_first(void);

#endif
