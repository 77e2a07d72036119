-- Bytes that say nothing: as many `x` as are asked for.

local flush, print = ngx.flush, ngx.print
local rep, sub = string.rep, string.sub

-- Texts that were asked for are kept, this many bytes of them together.
local KEPT_BYTES = 8 * 1024 * 1024
local kept, kept_bytes = {}, 0

local function text(bytes)
    local found = kept[bytes]
    if not found then
        found = rep("x", bytes)
        if kept_bytes + bytes > KEPT_BYTES then
            kept, kept_bytes = {}, 0
        end
        kept[bytes] = found
        kept_bytes = kept_bytes + bytes
    end
    return found
end

-- How many bytes may wait to be sent before the client is waited for.
local WAITING_BYTES = 256 * 1024

-- Sends so many bytes, in chunks. Stops where the client is gone.
local function send(bytes, chunk_bytes)
    local waiting = 0
    while bytes > chunk_bytes do
        if not print(text(chunk_bytes)) then
            return
        end
        bytes = bytes - chunk_bytes
        waiting = waiting + chunk_bytes
        if waiting >= WAITING_BYTES then
            if not flush(true) then
                return
            end
            waiting = 0
        end
    end
    if bytes == chunk_bytes then
        print(text(bytes))
    elseif bytes > 0 then
        print(sub(text(chunk_bytes), 1, bytes))
    end
end

return { send = send, text = text }
