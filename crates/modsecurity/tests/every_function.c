/* Calls every function of the interface as a connector does, and prints what comes back.
 *
 *     every_function RULES
 */
#include <modsecurity/intervention.h>
#include <modsecurity/modsecurity.h>
#include <modsecurity/rules.h>
#include <modsecurity/rules_set.h>
#include <modsecurity/transaction.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MODSECURITY_VERSION_NUM < 30130100
#error "the connector leaves out msc_set_request_hostname"
#endif

static const unsigned char *octets(const char *text) { return (const unsigned char *)text; }

static void on_log(void *data, const void *text) { printf("log %s: %s\n", (const char *)data, (const char *)text); }

static void print_intervention(Transaction *transaction, const char *after) {
    ModSecurityIntervention it = {200, 0, NULL, NULL, 0};
    if (msc_intervention(transaction, &it) == 0) return;
    printf("%s: status %d, pause %d, disruptive %d, url %s, log %s\n", after, it.status, it.pause, it.disruptive,
           it.url ? it.url : "-", it.log ? it.log : "-");
    msc_intervention_cleanup(&it);
    msc_intervention_cleanup(&it);
}

static void run(ModSecurity *server, RulesSet *rules, const char *target, const char *body_path) {
    Transaction *transaction = msc_new_transaction_with_id(server, rules, "id-1", "data");
    msc_process_connection(transaction, "192.0.2.7", 1234, "127.0.0.1", 80);
    msc_process_uri(transaction, target, "POST", "1.1");
    msc_set_request_hostname(transaction, octets("www.example.com"));
    msc_add_request_header(transaction, octets("Host"), octets("www.example.com"));
    msc_add_n_request_header(transaction, octets("Content-Typexx"), 12, octets("application/x-www-form-urlencodedxx"), 33);
    print_intervention(transaction, "before");
    msc_process_request_headers(transaction);
    print_intervention(transaction, "request headers");
    msc_append_request_body(transaction, octets("a=1&"), 4);
    if (body_path) printf("file %d\n", msc_request_body_from_file(transaction, body_path));
    msc_process_request_body(transaction);
    print_intervention(transaction, "request body");
    print_intervention(transaction, "again");
    msc_add_response_header(transaction, octets("Server"), octets("test"));
    msc_add_n_response_header(transaction, octets("Content-Type"), 12, octets("text/html"), 9);
    msc_process_response_headers(transaction, 200, "HTTP 1.1");
    print_intervention(transaction, "response headers");
    msc_append_response_body(transaction, octets("<p>"), 3);
    msc_append_response_body(transaction, octets("secret</p>"), 10);
    msc_process_response_body(transaction);
    print_intervention(transaction, "response body");
    printf("bodies %zu %zu %s\n", msc_get_request_body_length(transaction), msc_get_response_body_length(transaction),
           msc_get_response_body(transaction));
    msc_update_status_code(transaction, 404);
    msc_process_logging(transaction);
    print_intervention(transaction, "logging");
    msc_transaction_cleanup(transaction);
}

/* A null handle does no harm. */
static void call_with_nulls(ModSecurity *server) {
    const char *error = NULL;
    msc_set_log_cb(NULL, NULL);
    msc_set_connector_info(NULL, NULL);
    printf("null rules %d", msc_rules_add(NULL, NULL, &error));
    printf(" %s\n", error);
    msc_rules_error_cleanup(error);
    msc_rules_error_cleanup(NULL);
    msc_rules_add_file(NULL, NULL, NULL);
    msc_rules_merge(NULL, NULL, NULL);
    msc_rules_dump(NULL);
    printf("null transaction %d\n", msc_new_transaction(server, NULL, NULL) != NULL);
    msc_process_connection(NULL, NULL, 0, NULL, 0);
    msc_process_uri(NULL, NULL, NULL, NULL);
    msc_set_request_hostname(NULL, NULL);
    msc_add_request_header(NULL, NULL, NULL);
    msc_add_n_request_header(NULL, NULL, 9, NULL, 9);
    msc_process_request_headers(NULL);
    msc_append_request_body(NULL, NULL, 9);
    msc_request_body_from_file(NULL, NULL);
    msc_process_request_body(NULL);
    msc_add_response_header(NULL, NULL, NULL);
    msc_add_n_response_header(NULL, NULL, 9, NULL, 9);
    msc_process_response_headers(NULL, 0, NULL);
    msc_append_response_body(NULL, NULL, 9);
    msc_process_response_body(NULL);
    printf("null bodies %zu %zu %d\n", msc_get_request_body_length(NULL), msc_get_response_body_length(NULL),
           msc_get_response_body(NULL) != NULL);
    msc_update_status_code(NULL, 0);
    msc_process_logging(NULL);
    printf("null intervention %d\n", msc_intervention(NULL, NULL));
    msc_intervention_cleanup(NULL);
    msc_transaction_cleanup(NULL);
    msc_rules_cleanup(NULL);
    msc_cleanup(NULL);
}

/* Arguments that are null, and calls out of order, do no harm. */
static void call_in_any_order(ModSecurity *server, RulesSet *rules) {
    Transaction *transaction = msc_new_transaction(server, rules, "odd");
    msc_process_logging(transaction);
    msc_process_response_body(transaction);
    msc_process_request_body(transaction);
    msc_process_uri(transaction, NULL, NULL, NULL);
    msc_process_connection(transaction, NULL, -1, NULL, 1 << 20);
    msc_add_n_request_header(transaction, NULL, 9, NULL, 9);
    msc_process_request_headers(transaction);
    msc_process_request_headers(transaction);
    printf("missing file %d\n", msc_request_body_from_file(transaction, "/nonexistent/body"));
    print_intervention(transaction, "missing file");
    msc_process_response_headers(transaction, -5, NULL);
    printf("null target %d\n", msc_intervention(transaction, NULL));
    msc_transaction_cleanup(transaction);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    ModSecurity *server = msc_init();
    printf("%s\n", msc_who_am_i(server));
    msc_set_connector_info(server, "every_function v1");
    msc_set_log_cb(server, on_log);

    const char *error = NULL;
    RulesSet *parent = msc_create_rules_set();
    printf("file %d\n", msc_rules_add_file(parent, argv[1], &error));
    RulesSet *child = msc_create_rules_set();
    printf("text %d\n", msc_rules_add(child, "SecRule ARGS:b \"@streq 2\" \"id:100,phase:2,pass,log,msg:'child'\"", &error));
    printf("merge %d\n", msc_rules_merge(child, parent, &error));
    printf("twice %d", msc_rules_merge(child, parent, &error));
    printf(" %s\n", error ? error : "-");
    msc_rules_error_cleanup(error);
    printf("wrong %d", msc_rules_add(child, "SecRuel ARGS a", &error));
    printf(" %s\n", error ? error : "-");
    msc_rules_error_cleanup(error);
    printf("remote %d", msc_rules_add_remote(child, "key", "https://example.com/", &error));
    printf(" %s\n", error ? error : "-");
    msc_rules_error_cleanup(error);

    char path[] = "/tmp/every-function-XXXXXX";
    int file = mkstemp(path);
    FILE *stream = fdopen(file, "w");
    fputs("b=2", stream);
    fclose(stream);
    run(server, child, "/p%20x?q=attack", NULL);
    run(server, child, "/", path);
    remove(path);
    call_with_nulls(server);
    call_in_any_order(server, child);

    /* Transactions keep their rules. */
    Transaction *last = msc_new_transaction(server, child, "last");
    msc_rules_cleanup(child);
    msc_rules_cleanup(parent);
    msc_process_uri(last, "/?q=attack", "GET", "1.1");
    msc_process_request_headers(last);
    print_intervention(last, "last");
    msc_transaction_cleanup(last);
    msc_cleanup(server);
    return 0;
}
