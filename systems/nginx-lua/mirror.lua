-- /status/CODE, /headers, /echo and /method: what a proxy in front of a site is checked against.

local body = require "body"
local ffi = require "ffi"
local json = require "json"
local parameters = require "parameters"
local request = require "request"

local header = ngx.header
local var = ngx.var

local CODE = parameters.whole("status", "a whole number", 200, 599)

local function status()
    if not request.begin_without_body() then
        return
    end
    local word = var.uri:match "^/status/(.*)$"
    local code = word:find "^%d%d%d$" and tonumber(word)
    if not code or code < CODE.lowest or code > CODE.highest then
        return request.refuse(400, parameters.refusal(CODE, word).refusal)
    end
    ngx.status = code
    if code == 204 or code == 304 then
        return ngx.send_headers()
    end
    -- RFC 9110, section 15.3.6: a 205 has a length, and it is 0.
    return request.answer(code == 205 and "" or '{"status":' .. code .. "}")
end

local function headers()
    local list, count = request.headers(true)
    local lines = {}
    for i = 0, count - 1 do
        local name = ffi.string(list[i].key.data, list[i].key.len)
        local value = ffi.string(list[i].value.data, list[i].value.len)
        lines[i + 1] = "[" .. json.quoted(name) .. "," .. json.quoted(value) .. "]"
    end
    if not request.begin_without_body() then
        return
    end
    header["X-Content-Type-Options"] = "nosniff"
    return request.answer('{"headers":[' .. table.concat(lines, ",") .. "]}")
end

local function echo()
    if not request.begin() then
        return
    end
    ngx.req.read_body()
    header["Content-Type"] = var.content_type or "application/octet-stream"
    header["X-Content-Type-Options"] = "nosniff"
    local pieces = {}
    body.replay(function(piece) pieces[#pieces + 1] = piece end)
    return request.answer(table.concat(pieces))
end

local function method()
    local name = request.begin_without_body()
    if name then
        return request.answer('{"method":"' .. name .. '"}')
    end
end

return { status = status, headers = headers, echo = echo, method = method }
