-- /urandom and /zero: reads bytes of devices.

local clock = require "clock"
local ffi = require "ffi"
local parameters = require "parameters"
local request = require "request"
local yield = require "yield"

ffi.cdef [[
int open(const char *path, int flags, ...);
long read(int file, void *buffer, unsigned long bytes);
]]

local C = ffi.C
local EINTR = 4
local O_RDONLY, O_CLOEXEC = 0, 0x80000
local format = string.format
local now = clock.now

local BUFFER_BYTES = 64 * 1024
local buffer = ffi.new("uint8_t[?]", BUFFER_BYTES)

-- Limit for bytes read before other requests run.
local YIELD_BYTES = 4 * 1024 * 1024

local SIZE = 2048
local read_query = parameters.reader { parameters.bytes("size", 0, 64 * 1024 * 1024) }

-- Repeats a read that a signal interrupts.
local function read(file, bytes)
    local count
    repeat
        count = tonumber(C.read(file, buffer, bytes))
    until count >= 0 or ffi.errno() ~= EINTR
    if count <= 0 then
        error("cannot read a device: error " .. ffi.errno())
    end
    return count
end

local function endpoint(path)
    local file = C.open(path, bit.bor(O_RDONLY, O_CLOEXEC))
    if file < 0 then
        error("cannot open " .. path .. ": error " .. ffi.errno())
    end
    return function()
        local method, query = request.start_with_query(read_query)
        if not method then
            return
        end
        local size = query.size or SIZE
        local start = now()
        local left, until_yield = size, YIELD_BYTES
        while left > 0 do
            local count = read(file, left < BUFFER_BYTES and left or BUFFER_BYTES)
            left = left - count
            until_yield = until_yield - count
            if until_yield <= 0 and left > 0 then
                yield()
                until_yield = YIELD_BYTES
            end
        end
        return request.respond(format('{"size":%d,"time":%.6f}', size, now() - start))
    end
end

return { urandom = endpoint "/dev/urandom", zero = endpoint "/dev/zero" }
