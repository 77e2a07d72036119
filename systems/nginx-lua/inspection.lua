-- /status/CODE, /headers, /echo and /method: show how a request arrived.

local body = require "body"
local ffi = require "ffi"
local json = require "json"
local parameters = require "parameters"
local request = require "request"

local header = ngx.header
local var = ngx.var

local CODE = parameters.whole("status", "a whole number", 200, 599)

local function status()
    if not request.start_without_body() then
        return
    end
    local word = var.uri:match "^/status/(.*)$"
    local code = word:find "^%d%d%d$" and tonumber(word)
    if not code or code < CODE.lowest or code > CODE.highest then
        return request.respond_error(400, parameters.error(CODE, word).error)
    end
    ngx.status = code
    if code == 204 or code == 304 then
        return ngx.send_headers()
    end
    -- RFC 9110, section 15.3.6: a 205 has a Content-Length, and it is 0.
    return request.respond(code == 205 and "" or '{"status":' .. code .. "}")
end

local function headers()
    local list, count = request.headers(true)
    local lines = {}
    for i = 0, count - 1 do
        local name = ffi.string(list[i].key.data, list[i].key.len)
        local value = ffi.string(list[i].value.data, list[i].value.len)
        lines[i + 1] = "[" .. json.quoted(name) .. "," .. json.quoted(value) .. "]"
    end
    if not request.start_without_body() then
        return
    end
    header["X-Content-Type-Options"] = "nosniff"
    return request.respond('{"headers":[' .. table.concat(lines, ",") .. "]}")
end

local function echo()
    if not request.start() then
        return
    end
    ngx.req.read_body()
    header["Content-Type"] = var.content_type or "application/octet-stream"
    header["X-Content-Type-Options"] = "nosniff"
    local pieces = {}
    body.read_pieces(function(piece) pieces[#pieces + 1] = piece end)
    return request.respond(table.concat(pieces))
end

local function method()
    local name = request.start_without_body()
    if name then
        return request.respond('{"method":"' .. name .. '"}')
    end
end

return { status = status, headers = headers, echo = echo, method = method }
