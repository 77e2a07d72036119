-- Common parts of all endpoints: checks of a request, unused bodies, and responses.

require "resty.core"

local base = require "resty.core.base"
local ffi = require "ffi"
local json = require "json"

local C = ffi.C
local ngx = ngx
local clear_header = ngx.req.clear_header
local get_method = ngx.req.get_method
local header = ngx.header
local print = ngx.print
local var = ngx.var

local METHODS = {
    GET = true, HEAD = true, POST = true, PUT = true, PATCH = true, DELETE = true, OPTIONS = true,
}

-- Headers as nginx keeps them, in order. An array that is large enough for most requests is reused.
local REUSED_HEADERS = 64
local reused = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", REUSED_HEADERS)
local truncated = ffi.new "int[1]"

-- Returns the headers of this request and their number; names are in lower case unless `raw`.
local function headers(raw)
    local r = base.get_request()
    local count = C.ngx_http_lua_ffi_req_get_headers_count(r, 0, truncated)
    local list = reused
    if count > REUSED_HEADERS then
        list = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", count)
    end
    if count > 0 then
        C.ngx_http_lua_ffi_req_get_headers(r, list, count, raw and 1 or 0)
    end
    return list, count
end

-- Headers that nginx evaluates as conditions on every response, by length.
local CONDITIONS = {
    [8] = "if-match",
    [13] = "if-none-match",
    [17] = "if-modified-since",
    [19] = "if-unmodified-since",
}
local LETTER_I = ("i"):byte()

-- Limit for headers, and the status of a head that is too long, after which nginx closes.
local HEADERS, TOO_LONG = 100, 414

-- Returns the numbers of headers and of Hosts, and true for a Content-Length, a Transfer-Encoding and
-- conditions. Compares the lengths of names first.
local function scan_headers()
    local list, count = headers(false)
    local hosts, has_length, chunked, conditional = 0, false, false, false
    for i = 0, count - 1 do
        local key = list[i].key
        local length = key.len
        if length == 4 then
            if ffi.string(key.data, 4) == "host" then
                hosts = hosts + 1
            end
        elseif length == 14 then
            has_length = has_length or ffi.string(key.data, 14) == "content-length"
        elseif CONDITIONS[length] and key.data[0] == LETTER_I then
            conditional = conditional or ffi.string(key.data, length) == CONDITIONS[length]
        elseif length == 17 then
            chunked = chunked or ffi.string(key.data, 17) == "transfer-encoding"
        end
    end
    return count, hosts, has_length, chunked, conditional
end

local function respond(body)
    header["Content-Length"] = #body
    return print(body)
end

-- Responds with an error.
local function respond_error(status, reason)
    ngx.status = status
    header["X-Content-Type-Options"] = "nosniff"
    return respond('{"error":' .. json.quoted(reason) .. "}")
end

-- Discards a body. A chunked one is read, as its size is not known before.
local function discard(has_length, chunked)
    if chunked then
        ngx.req.read_body()
    elseif has_length then
        ngx.req.discard_body()
    end
end

-- Checks what nginx accepts: a second Host, too many headers, unknown methods. Returns the method, or
-- responds with an error and returns nil. Removes conditions: an endpoint that evaluates them, or shows
-- the headers, reads them before.
local function start()
    local count, hosts, has_length, chunked, conditional = scan_headers()
    if conditional then
        for _, name in pairs(CONDITIONS) do
            clear_header(name)
        end
    end
    if hosts > 1 then
        return ngx.exit(ngx.HTTP_BAD_REQUEST)
    end
    if count > HEADERS then
        return ngx.exit(TOO_LONG)
    end
    local method = get_method()
    if not METHODS[method] then
        discard(has_length, chunked)
        respond_error(501, "method `" .. method
            .. "` is not supported: must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS")
        return nil
    end
    return method, has_length, chunked
end

-- The same for an endpoint that does not use the body.
local function start_without_body()
    local method, has_length, chunked = start()
    if method then
        discard(has_length, chunked)
    end
    return method
end

-- The same for an endpoint with parameters. Returns them too.
local function start_with_query(read_query)
    local method = start_without_body()
    if not method then
        return nil
    end
    local query = read_query(var.args)
    if query.error then
        respond_error(query.status, query.error)
        return nil
    end
    return method, query
end

return {
    discard = discard,
    headers = headers,
    respond = respond,
    respond_error = respond_error,
    start = start,
    start_with_query = start_with_query,
    start_without_body = start_without_body,
}
