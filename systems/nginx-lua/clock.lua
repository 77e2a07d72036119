-- The monotonic clock, in seconds with a fraction, read without a system call.

local ffi = require "ffi"

ffi.cdef [[
struct site_timespec { long seconds; long nanoseconds; };
int clock_gettime(int clock, struct site_timespec *time);
]]

local C = ffi.C
local CLOCK_MONOTONIC = 1

local time = ffi.new "struct site_timespec"

local function now()
    C.clock_gettime(CLOCK_MONOTONIC, time)
    return tonumber(time.seconds) + tonumber(time.nanoseconds) * 1e-9
end

return { now = now }
