-- Burns a known time of CPU: looks at the thread's CPU clock until that time has passed. With 0 it takes
-- the same road and looks at the clock just as often as it must, so that two subjects differ by the burn
-- alone.

local ffi = require "ffi"

ffi.cdef [[
    struct burn_timespec { long seconds; long nanoseconds; };
    int clock_gettime(int clock, struct burn_timespec *now);
]]

local CLOCK_THREAD_CPUTIME_ID = 3
local C = ffi.C
-- Made once, so that a request leaves nothing behind for the garbage collector.
local clock = ffi.new("struct burn_timespec")

local requests, burned_ns, longest_ns = 0, 0, 0

local function now_ns()
    C.clock_gettime(CLOCK_THREAD_CPUTIME_ID, clock)
    return tonumber(clock.seconds) * 1e9 + tonumber(clock.nanoseconds)
end

local burn = {}

function burn.spin(us)
    local start_ns = now_ns()
    local until_ns = start_ns + us * 1e3
    local last_ns
    repeat
        last_ns = now_ns()
    until last_ns >= until_ns
    local spun_ns = last_ns - start_ns
    requests = requests + 1
    burned_ns = burned_ns + spun_ns
    longest_ns = math.max(longest_ns, spun_ns)
end

-- What LuaJIT compiles depends on what runs first: where most burns end at once, it would make another
-- program of this than where they do not. So it learns here, before the first request and for every
-- burn alike, from spins that are long enough for the loop to be what it compiles.
for _ = 1, 50 do
    burn.spin(200)
end
requests, burned_ns, longest_ns = 0, 0, 0

-- Leaves in the log how long it really took: a worker that ends tells the mean of its requests.
function burn.tell()
    if requests == 0 then
        return
    end
    local mean_us, longest_us = burned_ns / requests / 1e3, longest_ns / 1e3
    local line = "burned %.4f us of CPU a request, %.1f us at the most, over %d requests\n"
    io.stderr:write(line:format(mean_us, longest_us, requests))
end

return burn
