-- / and /index.html: the page, with the host that it was asked for under, or so many bytes of filler.

local filler = require "filler"
local parameters = require "parameters"
local request = require "request"

local header = ngx.header
local var = ngx.var

local read_query = parameters.reader { parameters.bytes("payload", 0, 64 * 1024 * 1024) }

-- A payload up to this size is one text that is kept; others are sent in chunks of it.
local CHUNK_BYTES = 64 * 1024

local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

-- The page between the places of the host.
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

-- Pages are kept by host, a few of them: a host is whatever a client says.
local KEPT = 16
local kept, count = {}, 0

local function page(host)
    local text = kept[host]
    if not text then
        local escaped = host:gsub("[&<>\"']", ENTITIES)
        text = table.concat(pieces, escaped)
        if count == KEPT then
            kept, count = {}, 0
        end
        kept[host] = text
        count = count + 1
    end
    return text
end

-- RFC 9112, section 3.2.2: what the target says counts. A client of HTTP/1.0 may name no host at all.
local function host()
    return var.request:match "^%S+ %a[%w+.%-]*://([^/?%s]+)"
        or var.http_host
        or var.server_addr .. ":" .. var.server_port
end

local function show()
    header["Content-Type"] = "text/html; charset=utf-8"
    return request.answer(page(host()))
end

local function index()
    if request.begin_without_body() then
        return show()
    end
end

local function root()
    local method, query = request.begin_with_query(read_query)
    if not method then
        return
    end
    local bytes = query.payload
    if not bytes then
        return show()
    end
    header["Content-Type"] = "text/plain"
    if bytes <= CHUNK_BYTES then
        return request.answer(filler.text(bytes))
    end
    header["Content-Length"] = bytes
    if method == "HEAD" then
        return ngx.send_headers()
    end
    return filler.send(bytes, CHUNK_BYTES)
end

-- Every other path answers too, with a line that names it.
local function any()
    if not request.begin_without_body() then
        return
    end
    header["Content-Type"] = "text/plain"
    header["X-Content-Type-Options"] = "nosniff"
    local path = var.request_uri:match "^[^?]*"
    return request.answer("nginx-lua: " .. path .. "\n")
end

return { load = load, index = index, root = root, any = any }
