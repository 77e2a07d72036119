-- / and /index.html: the page with the requested host, or filler; and all other paths.

local filler = require "filler"
local parameters = require "parameters"
local request = require "request"

local header = ngx.header
local var = ngx.var

local read_query = parameters.reader { parameters.bytes("payload", 0, 64 * 1024 * 1024) }

-- Payloads up to this size are cached; larger ones are sent in chunks of it.
local CHUNK_BYTES = 64 * 1024

local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

-- The page, split at the placeholders of the host.
local pieces = {}

local function load(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read "*a"
    file:close()
    local at = 1
    repeat
        local start, stop = text:find("{{host}}", at, true)
        pieces[#pieces + 1] = text:sub(at, (start or 0) - 1)
        at = stop and stop + 1
    until not at
end

-- Rendered pages by host. Limited, as clients choose the host.
local CACHED_PAGES = 16
local cache, count = {}, 0

local function page(host)
    local text = cache[host]
    if not text then
        local escaped = host:gsub("[&<>\"']", ENTITIES)
        text = table.concat(pieces, escaped)
        if count == CACHED_PAGES then
            cache, count = {}, 0
        end
        cache[host] = text
        count = count + 1
    end
    return text
end

-- RFC 9112, section 3.2.2: the target takes precedence over Host. HTTP/1.0 needs neither.
local function host()
    return var.request:match "^%S+ %a[%w+.%-]*://([^/?%s]+)"
        or var.http_host
        or var.server_addr .. ":" .. var.server_port
end

local function show()
    header["Content-Type"] = "text/html; charset=utf-8"
    return request.respond(page(host()))
end

local function index()
    if request.start_without_body() then
        return show()
    end
end

local function root()
    local method, query = request.start_with_query(read_query)
    if not method then
        return
    end
    local bytes = query.payload
    if not bytes then
        return show()
    end
    header["Content-Type"] = "text/plain"
    if bytes <= CHUNK_BYTES then
        return request.respond(filler.text(bytes))
    end
    header["Content-Length"] = bytes
    if method == "HEAD" then
        return ngx.send_headers()
    end
    return filler.send(bytes, CHUNK_BYTES)
end

-- Responds to every other path with a line that names it.
local function any()
    if not request.start_without_body() then
        return
    end
    header["Content-Type"] = "text/plain"
    header["X-Content-Type-Options"] = "nosniff"
    local path = var.request_uri:match "^[^?]*"
    return request.respond("nginx-lua: " .. path .. "\n")
end

return { load = load, index = index, root = root, any = any }
