-- Burns a known CPU time: works until the thread's CPU clock shows that the time has passed. Every subject burns one
-- microsecond more than configured, so that all run the same loop and overshoot by the same half reading on
-- average: two subjects differ by the configured time alone.
--
-- Most of a long time is spent on messages over a TCP connection of the process to itself, the rest on readings of the
-- clock. A loop that only reads the clock for 200 microseconds leaves the caches cold for the rest of the request,
-- which then costs five microseconds more that nobody planted.

local ffi = require "ffi"

ffi.cdef [[
    struct burn_timespec { long seconds; long nanoseconds; };
    struct burn_address { uint16_t family; uint16_t port; uint32_t address; char padding[8]; };
    int clock_gettime(int clock, struct burn_timespec *now);
    int socket(int domain, int type, int protocol);
    int bind(int socket, const struct burn_address *address, unsigned size);
    int listen(int socket, int backlog);
    int getsockname(int socket, struct burn_address *address, unsigned *size);
    int connect(int socket, const struct burn_address *address, unsigned size);
    int accept(int socket, void *address, void *size);
    int setsockopt(int socket, int level, int name, const int *value, unsigned size);
    ssize_t send(int socket, const void *bytes, size_t size, int flags);
    ssize_t recv(int socket, void *bytes, size_t size, int flags);
    int close(int socket);
]]

local CLOCK_THREAD_CPUTIME_ID = 3
local AF_INET, SOCK_STREAM, IPPROTO_TCP, TCP_NODELAY = 2, 1, 6, 1
local COMMON_US = 1
-- Longer than an exchange of messages takes. Short, as reading a clock cools the caches for the rest of the request.
local LAST_US = 12
local MESSAGE_BYTES = 300
local C = ffi.C
-- Allocated once, so that requests create no garbage.
local clock = ffi.new("struct burn_timespec")
local message = ffi.new("char[?]", MESSAGE_BYTES)

local requests, burned_ns, longest_ns = 0, 0, 0

local function now_ns()
    C.clock_gettime(CLOCK_THREAD_CPUTIME_ID, clock)
    return tonumber(clock.seconds) * 1e9 + tonumber(clock.nanoseconds)
end

local function check(result, what)
    if result < 0 then
        error(what .. " failed with errno " .. ffi.errno())
    end
    return result
end

-- Opens a TCP connection of the process to itself.
local function connection()
    local address = ffi.new("struct burn_address")
    local size = ffi.new("unsigned[1]", ffi.sizeof(address))
    address.family = AF_INET
    address.address = ffi.abi("le") and 0x0100007f or 0x7f000001
    local listener = check(C.socket(AF_INET, SOCK_STREAM, 0), "socket")
    check(C.bind(listener, address, size[0]), "bind")
    check(C.listen(listener, 1), "listen")
    check(C.getsockname(listener, address, size), "getsockname")
    local near = check(C.socket(AF_INET, SOCK_STREAM, 0), "socket")
    check(C.connect(near, address, size[0]), "connect")
    local far = check(C.accept(listener, nil, nil), "accept")
    C.close(listener)
    local yes = ffi.new("int[1]", 1)
    for _, socket in ipairs { near, far } do
        check(C.setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, yes, ffi.sizeof("int")), "setsockopt")
    end
    return near, far
end

local near, far

local function exchange()
    C.send(near, message, MESSAGE_BYTES, 0)
    C.recv(far, message, MESSAGE_BYTES, 0)
    C.send(far, message, MESSAGE_BYTES, 0)
    C.recv(near, message, MESSAGE_BYTES, 0)
end

local burn = {}

function burn.spin(us)
    local start_ns = now_ns()
    local until_ns = start_ns + (us + COMMON_US) * 1e3
    local last_ns = start_ns
    while last_ns < until_ns - LAST_US * 1e3 do
        exchange()
        last_ns = now_ns()
    end
    repeat
        last_ns = now_ns()
    until last_ns >= until_ns
    local spun_ns = last_ns - start_ns
    requests = requests + 1
    burned_ns = burned_ns + spun_ns
    longest_ns = math.max(longest_ns, spun_ns)
end

-- Prepares a worker. LuaJIT's traces depend on the first calls. These spins make it compile the loop before the first
-- request, in the same way for every configured time.
function burn.init()
    near, far = connection()
    for _ = 1, 50 do
        burn.spin(200)
    end
    requests, burned_ns, longest_ns = 0, 0, 0
end

-- Logs the CPU time that was really burned, when a worker exits.
function burn.report()
    if requests == 0 then
        return
    end
    local mean_us, longest_us = burned_ns / requests / 1e3, longest_ns / 1e3
    local line = "burned %.4f us of CPU per request, %.1f us at most, over %d requests\n"
    io.stderr:write(line:format(mean_us, longest_us, requests))
end

return burn
