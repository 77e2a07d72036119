/* Connections in the order in which they are next due to write: a binary heap that knows where each
 * connection stands in it. */
#ifndef DUE_H
#define DUE_H

#include <stdint.h>

struct connection;

/* Makes `connection` due at `at_ns`; it must not be due already. */
void due_add(struct connection *connection, int64_t at_ns);

/* Takes `connection` out, wherever it stands, if it is due at all. */
void due_remove(struct connection *connection);

/* The connection that is due first, or NULL. */
struct connection *due_first(void);

#endif
