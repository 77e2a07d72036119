/* Reaction to a rule that ends a transaction. */
#ifndef TOLLGATE_MODSECURITY_INTERVENTION_H
#define TOLLGATE_MODSECURITY_INTERVENTION_H

/* Filled in by msc_intervention(). The caller frees `url` and `log`, with free() or msc_intervention_cleanup(). */
typedef struct ModSecurityIntervention_t {
    int status;     /* of the response */
    int pause;      /* always 0 */
    char *url;      /* target of a redirect, or NULL */
    char *log;      /* text for the server's log, or NULL */
    int disruptive; /* 1 if the transaction is to end */
} ModSecurityIntervention;

#endif
