/* The name of rules_set.h in older connectors. */
#include "modsecurity/rules_set.h"
