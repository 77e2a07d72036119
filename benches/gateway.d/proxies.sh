# The tuned proxies of benches/attacks and benches/witnesses, which source this file after benches/common.sh: each with
# one worker or thread on CPU 1, in front of one or more `tollgate origin` on CPU 0.

title=([nginx]='nginx' [haproxy]='HAProxy' [gateway]='tollgate gateway')

set_files_max() {
    # The same on every machine, since nginx's memory depends on it: 10,000 idle clients, and connections to origins.
    files_max=16384
    ulimit -n $files_max 2>/dev/null ||
        refuse "this needs $files_max open files a process, and $(ulimit -Hn) are allowed here; root may raise that: ulimit -Hn $files_max"
}

write_certificate() { # on P-256, as most sites have: sets `pem`
    pem=$work/site.pem
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 7 -subj /CN=localhost -keyout "$work/site.key" -out "$work/site.crt" 2>/dev/null
    cat "$work/site.crt" "$work/site.key" >"$pem"
}

origin_ports=()
origin_pids=()
declare -A port_of h2_port_of tls_port_of pids # WHO-ORIGINS

start_origins() { # COUNT
    local at
    for at in $(seq "$1"); do
        find_port
        taskset -c 0 "$tollgate" origin --listen "127.0.0.1:$port" >"$work/origin-$at.log" 2>&1 & started+=($!)
        wait_for "$port" "tollgate origin" "$work/origin-$at.log"
        origin_ports+=("$port")
        origin_pids+=("${started[-1]}")
    done
}

origins_as() { # ORIGINS FORMAT: each of the first ORIGINS origins in that format: its number, its port
    local at
    for at in $(seq "$1"); do
        # shellcheck disable=SC2059 # the format is the caller's
        printf "$2" "$at" "${origin_ports[at - 1]}"
    done
}

# As many connections as open files are allowed; HAProxy's limit counts clients only, so the pool-max-conn connections
# to each of two origins are subtracted.
render() { # FILE ORIGINS FORMAT
    ORIGINS=$(origins_as "$2" "$3") awk -v port="$port" -v tls_port="$tls_port" -v h2_port="$h2_port" -v pem="$pem" -v files="$files_max" '
        { gsub(/TLSPORT/, tls_port); gsub(/H2PORT/, h2_port); gsub(/PEM/, pem) }
        $0 == "ORIGINS" { print ENVIRON["ORIGINS"]; next }
        ENVIRON["features"] == "yes" { sub(/#FEATURE /, "") }
        ENVIRON["defers"] == "no" { sub(/ (deferred|defer-accept)/, ""); sub(/defer_accept: true/, "defer_accept: false") }
        { gsub(/PORT/, port); gsub(/RLIMIT/, files); gsub(/MAXCONN/, files - 2 * 1024 - 200); print }' "$1"
}

start_proxy() { # WHO ORIGINS: sets its `port_of`, `h2_port_of`, `tls_port_of` and `pids`
    local id=$1-$2 pid dir=$work/$1-$2 tls_port h2_port ports=()
    while [ ${#ports[@]} -lt 3 ]; do
        find_port
        [[ " ${ports[*]} " = *" $port "* ]] || ports+=("$port")
    done
    port=${ports[0]} h2_port=${ports[1]} tls_port=${ports[2]}
    mkdir -p "$dir"
    case $1 in
    nginx)
        render benches/gateway.d/nginx.conf "$2" '        server 127.0.0.1:%.0s%s;\n' >"$dir/nginx.conf"
        chmod -R a+rX "$work"
        taskset -c 1 "$nginx" -e stderr -p "$dir" -c "$dir/nginx.conf" 2>"$dir/log" & ;;
    haproxy)
        render benches/gateway.d/haproxy.cfg "$2" '    server origin%s 127.0.0.1:%s pool-max-conn 1024\n' >"$dir/haproxy.cfg"
        taskset -c 1 haproxy -db -f "$dir/haproxy.cfg" >"$dir/log" 2>&1 & ;;
    gateway)
        render benches/gateway.d/gateway.yaml "$2" '      - address: 127.0.0.1:%.0s%s\n' >"$dir/gateway.yaml"
        taskset -c 1 "$tollgate" gateway --config "$dir/gateway.yaml" >"$dir/log" 2>&1 & ;;
    esac
    pid=$!
    started+=("$pid")
    wait_for "$port" "${title[$1]}" "$dir/log"
    port_of[$id]=$port
    h2_port_of[$id]=$h2_port
    tls_port_of[$id]=$tls_port
    pids[$id]=$pid
    [ "$1" != nginx ] || pids[$id]="$pid $(pgrep -d ' ' -P "$pid")"
}

stop_last() {
    kill "${started[-1]}"
    wait "${started[-1]}" 2>/dev/null || true
    unset 'started[-1]'
}

cpu_ns() { # PID...: CPU time of all their threads so far, and the time that they were runnable but not running
    local pid
    for pid in "$@"; do cat "/proc/$pid/task/"*/schedstat; done | awk '{ ran += $1; waited += $2 } END { printf "%.0f %.0f\n", ran, waited }'
}
