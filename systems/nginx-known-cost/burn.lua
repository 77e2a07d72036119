-- Burns a known CPU time: polls the thread's CPU clock until that time has passed. Every subject burns one
-- microsecond more than configured, so that all run the same loop and overshoot by the same half reading on
-- average: two subjects differ by the configured time alone.

local ffi = require "ffi"

ffi.cdef [[
    struct burn_timespec { long seconds; long nanoseconds; };
    int clock_gettime(int clock, struct burn_timespec *now);
]]

local CLOCK_THREAD_CPUTIME_ID = 3
local COMMON_US = 1
local C = ffi.C
-- Allocated once, so that requests create no garbage.
local clock = ffi.new("struct burn_timespec")

local requests, burned_ns, longest_ns = 0, 0, 0

local function now_ns()
    C.clock_gettime(CLOCK_THREAD_CPUTIME_ID, clock)
    return tonumber(clock.seconds) * 1e9 + tonumber(clock.nanoseconds)
end

local burn = {}

function burn.spin(us)
    local start_ns = now_ns()
    local until_ns = start_ns + (us + COMMON_US) * 1e3
    local last_ns
    repeat
        last_ns = now_ns()
    until last_ns >= until_ns
    local spun_ns = last_ns - start_ns
    requests = requests + 1
    burned_ns = burned_ns + spun_ns
    longest_ns = math.max(longest_ns, spun_ns)
end

-- LuaJIT's traces depend on the first calls. These spins make it compile the loop before the first request, in the
-- same way for every configured time.
for _ = 1, 50 do
    burn.spin(200)
end
requests, burned_ns, longest_ns = 0, 0, 0

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
