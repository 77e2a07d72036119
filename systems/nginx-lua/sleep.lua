-- /sleep: responds after a time.

local clock = require "clock"
local parameters = require "parameters"
local request = require "request"

local ceil, max = math.ceil, math.max
local format = string.format
local now = clock.now
local sleep = ngx.sleep

local SECONDS = 1
local read_query = parameters.reader { parameters.seconds("time", 0, 60) }

-- Timers of nginx have whole milliseconds and may end up to one early; the rest is slept then.
local function respond_later()
    local method, query = request.start_with_query(read_query)
    if not method then
        return
    end
    local start = now()
    local left = query.time or SECONDS
    ngx.update_time()
    local due = start + left
    while left > 0 do
        sleep(max(ceil(left * 1000), 1) / 1000)
        left = due - now()
    end
    return request.respond(format('{"time":%.6f}', now() - start))
end

return { sleep = respond_later }
