/* Server processes: the library's handle and its log callback. */
#ifndef TOLLGATE_MODSECURITY_MODSECURITY_H
#define TOLLGATE_MODSECURITY_MODSECURITY_H

/* The version of libmodsecurity whose interface this is. */
#define MODSECURITY_MAJOR "3"
#define MODSECURITY_MINOR "0"
#define MODSECURITY_PATCHLEVEL "13"
#define MODSECURITY_TAG ""
#define MODSECURITY_TAG_NUM "100"
#define MODSECURITY_VERSION MODSECURITY_MAJOR "." MODSECURITY_MINOR "." MODSECURITY_PATCHLEVEL MODSECURITY_TAG
#define MODSECURITY_VERSION_NUM 30130100
#define MODSECURITY_CHECK_VERSION(a) (MODSECURITY_VERSION_NUM <= (a))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ModSecurity_t ModSecurity;

/* Writes a line: the argument of the transaction, and a text that is valid during the call. */
typedef void (*ModSecLogCb)(void *data, const void *text);

ModSecurity *msc_init(void);
const char *msc_who_am_i(ModSecurity *server);
void msc_set_connector_info(ModSecurity *server, const char *connector);
void msc_set_log_cb(ModSecurity *server, ModSecLogCb callback);
void msc_cleanup(ModSecurity *server);

#ifdef __cplusplus
}
#endif

#endif
