/* A request with its response, in the order of the calls. */
#ifndef TOLLGATE_MODSECURITY_TRANSACTION_H
#define TOLLGATE_MODSECURITY_TRANSACTION_H

#include <stddef.h>

#include "modsecurity/intervention.h"
#include "modsecurity/modsecurity.h"
#include "modsecurity/rules_set.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Transaction_t Transaction;

Transaction *msc_new_transaction(ModSecurity *server, RulesSet *rules, void *log_data);
Transaction *msc_new_transaction_with_id(ModSecurity *server, RulesSet *rules, char *id, void *log_data);

int msc_process_connection(Transaction *transaction, const char *client, int client_port, const char *server, int server_port);
/* The version is without "HTTP/". */
int msc_process_uri(Transaction *transaction, const char *uri, const char *method, const char *http_version);
int msc_set_request_hostname(Transaction *transaction, const unsigned char *name);
int msc_add_request_header(Transaction *transaction, const unsigned char *name, const unsigned char *value);
int msc_add_n_request_header(Transaction *transaction, const unsigned char *name, size_t name_length,
                             const unsigned char *value, size_t value_length);
int msc_process_request_headers(Transaction *transaction);
int msc_append_request_body(Transaction *transaction, const unsigned char *body, size_t length);
int msc_request_body_from_file(Transaction *transaction, const char *path);
int msc_process_request_body(Transaction *transaction);
size_t msc_get_request_body_length(Transaction *transaction);

int msc_add_response_header(Transaction *transaction, const unsigned char *name, const unsigned char *value);
int msc_add_n_response_header(Transaction *transaction, const unsigned char *name, size_t name_length,
                              const unsigned char *value, size_t value_length);
int msc_process_response_headers(Transaction *transaction, int status, const char *protocol);
int msc_append_response_body(Transaction *transaction, const unsigned char *body, size_t length);
int msc_process_response_body(Transaction *transaction);
const char *msc_get_response_body(Transaction *transaction);
size_t msc_get_response_body_length(Transaction *transaction);

int msc_update_status_code(Transaction *transaction, int status);
int msc_process_logging(Transaction *transaction);

/* Returns 1 and fills in the intervention if the transaction is to end, once for each decision. */
int msc_intervention(Transaction *transaction, ModSecurityIntervention *intervention);
void msc_intervention_cleanup(ModSecurityIntervention *intervention);
void msc_transaction_cleanup(Transaction *transaction);

#ifdef __cplusplus
}
#endif

#endif
