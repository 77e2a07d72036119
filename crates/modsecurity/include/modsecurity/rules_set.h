/* Rules of one place in a server's configuration. */
#ifndef TOLLGATE_MODSECURITY_RULES_SET_H
#define TOLLGATE_MODSECURITY_RULES_SET_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Rules_t RulesSet;
typedef struct Rules_t Rules;

RulesSet *msc_create_rules_set(void);
void msc_rules_dump(RulesSet *rules);
/* These four return the number of rules, or -1 and an error text, which the caller frees with free() or
 * msc_rules_error_cleanup(). */
int msc_rules_merge(RulesSet *rules, RulesSet *from, const char **error);
int msc_rules_add_remote(RulesSet *rules, const char *key, const char *uri, const char **error);
int msc_rules_add_file(RulesSet *rules, const char *file, const char **error);
int msc_rules_add(RulesSet *rules, const char *text, const char **error);
void msc_rules_error_cleanup(const char *error);
int msc_rules_cleanup(RulesSet *rules);

#ifdef __cplusplus
}
#endif

#endif
