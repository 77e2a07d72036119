-- Bytes that say nothing: as many `x` as are asked for.

local turn = require "turn"

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

-- How many bytes may wait to be sent, and in how many chunks, before the client is waited for. nginx goes
-- through all that wait with every chunk that comes.
local WAITING_BYTES, WAITING_CHUNKS = 256 * 1024, 256

-- After so many bytes or chunks other requests have their turn: a client that takes all of it at once is
-- never waited for.
local TURN_BYTES, TURN_CHUNKS = 16 * 1024 * 1024, 4096

-- Sends so many bytes, in chunks. Stops where the client is gone.
local function send(bytes, chunk_bytes)
    local waiting, waiting_chunks = 0, 0
    local taken, taken_chunks = 0, 0
    while bytes > chunk_bytes do
        if not print(text(chunk_bytes)) then
            return
        end
        bytes = bytes - chunk_bytes
        waiting = waiting + chunk_bytes
        waiting_chunks = waiting_chunks + 1
        if waiting >= WAITING_BYTES or waiting_chunks == WAITING_CHUNKS then
            if not flush(true) then
                return
            end
            taken, taken_chunks = taken + waiting, taken_chunks + waiting_chunks
            waiting, waiting_chunks = 0, 0
            if taken >= TURN_BYTES or taken_chunks >= TURN_CHUNKS then
                turn.give()
                taken, taken_chunks = 0, 0
            end
        end
    end
    if bytes == chunk_bytes then
        print(text(bytes))
    elseif bytes > 0 then
        print(sub(text(chunk_bytes), 1, bytes))
    end
end

return { send = send, text = text }
