-- Filler: bytes of the letter x.

local yield = require "yield"

local flush, print = ngx.flush, ngx.print
local rep, sub = string.rep, string.sub

-- Cached texts by length, and the limit for all of them.
local CACHE_BYTES = 8 * 1024 * 1024
local cache, cache_bytes = {}, 0

local function text(bytes)
    local found = cache[bytes]
    if not found then
        found = rep("x", bytes)
        if cache_bytes + bytes > CACHE_BYTES then
            cache, cache_bytes = {}, 0
        end
        cache[bytes] = found
        cache_bytes = cache_bytes + bytes
    end
    return found
end

-- Limits for unsent bytes and chunks: nginx walks through all unsent chunks for each new one.
local UNSENT_BYTES, UNSENT_CHUNKS = 256 * 1024, 256

-- Limits for bytes and chunks sent before other requests run: a flush to a fast client does not yield.
local YIELD_BYTES, YIELD_CHUNKS = 16 * 1024 * 1024, 4096

-- Sends `bytes` bytes in chunks. Stops if the client disconnects.
local function send(bytes, chunk_bytes)
    local unsent, unsent_chunks = 0, 0
    local sent, sent_chunks = 0, 0
    while bytes > chunk_bytes do
        if not print(text(chunk_bytes)) then
            return
        end
        bytes = bytes - chunk_bytes
        unsent = unsent + chunk_bytes
        unsent_chunks = unsent_chunks + 1
        if unsent >= UNSENT_BYTES or unsent_chunks == UNSENT_CHUNKS then
            if not flush(true) then
                return
            end
            sent, sent_chunks = sent + unsent, sent_chunks + unsent_chunks
            unsent, unsent_chunks = 0, 0
            if sent >= YIELD_BYTES or sent_chunks >= YIELD_CHUNKS then
                yield()
                sent, sent_chunks = 0, 0
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
