# Functions shared by the benches, which source this file. Removes the folder "$work" and stops every process in
# `started` on exit.
#
# A result is a line `CASE WHO ROUND CPU_US_PER_REQUEST REQUESTS_PER_S` in "$work/results"; `who` lists the compared
# programs, `title` has their names.
export LC_ALL=C
tollgate=${CARGO_TARGET_DIR:-$PWD/target}/release/tollgate
declare -A title
who=()

say() { printf '%s\n' "$*" >&2; }
refuse() { say "$*"; exit 2; }
usage() { sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$script"; }
check_count() { [[ $1 =~ ^[1-9][0-9]{0,2}$ ]] || refuse "$2 must be a whole number from 1 to 999, not '$1'"; }

check_machine() { # PROGRAM...: checks for these programs, nginx, the release build and two CPUs
    local program cpu
    for program in "$@"; do
        command -v "$program" >/dev/null || refuse "$program not found; install it: apt-get install -y ${package[$program]:-$program}"
    done
    nginx=$(PATH=$PATH:/usr/sbin command -v nginx) || refuse "nginx not found; install it: make packages"
    [ -x "$tollgate" ] || refuse "$tollgate not found; build it: cargo build --release"
    for cpu in 0 1; do
        taskset -c $cpu true 2>/dev/null || refuse "CPU $cpu is not available; this needs CPU 0 for clients and CPU 1 for the server"
    done
    ulimit -Sn "$(ulimit -Hn)"
}

work=$(mktemp -d)
touch "$work/results"
started=()
stop() {
    # One that is stopped ends once it continues.
    for pid in "${started[@]}"; do { kill "$pid" && kill -CONT "$pid"; } 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; } # PORT

find_port() { # sets `port` to a free port
    for _ in $(seq 20); do
        port=$((20000 + RANDOM % 10000))
        listens $port || return 0
    done
    refuse "found no free port"
}

wait_for() { # PORT NAME LOG: waits until the port accepts connections
    for _ in $(seq 100); do
        ! listens "$1" || return 0
        sleep 0.05
    done
    say "$2 did not start:"; cat "$3" >&2; exit 1
}

# ---- results

cpu=4 throughput=5 # columns of `results`

figure() { # CASE WHO COLUMN [OVER]: median, minimum and maximum over the rounds, of the column or of its ratio to OVER
    awk -v id="$1" -v who="$2" -v column="$3" -v over="${4:-}" '
        $1 == id && $2 == who { mine[$3] = $column }
        $1 == id && $2 == over { theirs[$3] = $column }
        END { for (round in mine) if (over == "") print mine[round]; else if (round in theirs) print mine[round] / theirs[round] }
    ' "$work/results" | sort -g | awk '{ v[NR] = $1 } END {
        if (NR) printf "%.3f %.3f %.3f\n", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[1], v[NR]; else print "-" }'
}

print_head() { # NAME
    local one
    printf '\n| %s |' "$1"
    for one in "${who[@]}"; do printf ' %s |' "${title[$one]}"; done
    printf '\n|---|%s\n' "$(printf -- '--:|%.0s' "${who[@]}")"
}

print_row() { # LABEL DIGITS CASE COLUMN [OVER]
    local one median
    printf '| %s |' "$1"
    for one in "${who[@]}"; do
        read -r median _ < <(figure "$3" "$one" "$4" "${5:-}")
        if [ "$median" = - ]; then printf ' - |'; else printf " %.$2f |" "$median"; fi
    done
    echo
}

in_turns() { # ROUND: `who`, rotated by one each round
    local first=$(($1 % ${#who[@]}))
    echo "${who[@]:first}" "${who[@]:0:first}"
}

# ---- machine and targets

version() { # COMMAND...: the first number in its output, whatever its exit code
    { "$@" 2>&1 || true; } | grep -om 1 '[0-9][0-9.]*[0-9]' | sed -n 1p | grep . || echo unknown
}

print_machine() {
    printf 'Machine: %s, %s CPUs, Linux %s, %s; load average before the run %s. ' \
        "$(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo)" "$(nproc --all)" "$(uname -r)" \
        "$(lscpu | sed -n 's/^Hypervisor vendor: */hypervisor /p' | grep . || echo 'no hypervisor')" "$(cut -d ' ' -f 1 /proc/loadavg)"
}

missed=0
print_targets_head() { printf '\n| target | limit | median (min to max) | |\n|---|---|---|---|\n'; }
print_target() { # WHAT '<='|'>='|'<' LIMIT 'MEDIAN [MIN MAX]'
    local median low high verdict=missed
    read -r median low high <<<"$4"
    if [ "$median" = - ]; then verdict='not measured'; elif awk "BEGIN { exit !($median $2 $3) }"; then verdict=held; fi
    [ "$verdict" = held ] || missed=$((missed + 1))
    printf '| %s | %s %s | %s | %s |\n' "$1" "$2" "$3" "$median${low:+ ($low to $high)}" "$verdict"
}
