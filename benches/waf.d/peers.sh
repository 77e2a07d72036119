# Functions shared by benches/waf, benches/drop-in and scripts/waf-differential, which source this file from the root of the project.

say() { printf '%s\n' "$*" >&2; }

# build_requests FOLDER: builds the program that makes requests, and writes the Core Rule Set, for all engines in one form.
build_requests() {
    cargo build --quiet --release --locked -p tollgate-waf-tools --example wafbench
    ours=${CARGO_TARGET_DIR:-$PWD/target}/release/examples/wafbench
    (cd builds/crs && go build -o "$1/write-crs" . && go list -m -f '{{.Dir}}' github.com/corazawaf/coraza-coreruleset/v4) >"$1/module"
    "$1/write-crs" "$1"
    tests=$(cat "$1/module")/tests
}

# build_engines FOLDER: the same, and builds the other two engines.
build_engines() {
    build_requests "$1"
    cc -O2 -o "$1/modsecurity" benches/waf.d/modsecurity.c -lmodsecurity ||
        { say "cannot build the harness of libmodsecurity; install it: apt-get install -y libmodsecurity-dev gcc"; exit 2; }
    (cd benches/waf.d/coraza && go build -o "$1/coraza" .) ||
        { say "cannot build Coraza; install Go: scripts/setup go"; exit 2; }
}

# write_rules FOLDER LEVEL ENGINE [packaged], where coraza-filter is Coraza with SecRxPreFilter: writes FOLDER/level-LEVEL-ENGINE.conf, with the limits that each engine
# recommends, for the Core Rule Set in FOLDER or that of the package modsecurity-crs.
write_rules() {
    local setup=$1/crs-setup.conf rules=$1/rules name=blocking_paranoia_level
    if [ "${4:-}" = packaged ]; then
        setup=/etc/modsecurity/crs/crs-setup.conf rules=/usr/share/modsecurity-crs/rules name=paranoia_level
    fi
    {
        cat <<'CONF'
SecRuleEngine DetectionOnly
SecRequestBodyAccess On
SecRequestBodyLimit 13107200
SecRequestBodyNoFilesLimit 1310720
SecRequestBodyLimitAction Reject
SecArgumentSeparator &
SecResponseBodyAccess On
SecResponseBodyMimeType text/plain text/html text/xml application/json
SecResponseBodyLimit 524288
SecResponseBodyLimitAction ProcessPartial

SecRule REQUEST_HEADERS:Content-Type "^(?:application(?:/soap\+|/)|text/)xml" "id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML"

SecRule REQUEST_HEADERS:Content-Type "^application/json" "id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"

CONF
        # libmodsecurity sets REQUEST_BODY for every body, other than its documentation says.
        [ "$3" = modsecurity ] || printf 'SecAction "id:200003,phase:1,pass,nolog,ctl:forceRequestBodyVariable=On"\n\n'
        [ "$3" != coraza-filter ] || printf 'SecRxPreFilter On\n\n'
        [ "$3" != modsecurity ] || printf 'SecPcreMatchLimit 1000\nSecPcreMatchLimitRecursion 1000\n\n'
        printf 'SecAction "id:900000,phase:1,pass,nolog,setvar:tx.%s=%s"\n\n' $name "$2"
        printf 'Include %s\nInclude %s/*.conf\n' "$setup" "$rules"
    } >"$1/level-$2-$3.conf"
}
