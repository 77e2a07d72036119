-- What all endpoints have in common: whether a request may be answered, its body when nobody wants
-- it, and answers whose length is known.

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

-- Headers as nginx keeps them, in the order in which they came. As many as nearly all requests have
-- fit in an array that is made once.
local USUAL = 64
local usual = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", USUAL)
local truncated = ffi.new "int[1]"

-- The headers of this request and how many there are; their names in lower case, unless `raw`.
local function headers(raw)
    local r = base.get_request()
    local count = C.ngx_http_lua_ffi_req_get_headers_count(r, 0, truncated)
    local list = usual
    if count > USUAL then
        list = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", count)
    end
    if count > 0 then
        C.ngx_http_lua_ffi_req_get_headers(r, list, count, raw and 1 or 0)
    end
    return list, count
end

-- What nginx takes for conditions on whatever is answered, by the length of the name.
local CONDITIONS = {
    [8] = "if-match",
    [13] = "if-none-match",
    [17] = "if-modified-since",
    [19] = "if-unmodified-since",
}
local LETTER_I = ("i"):byte()

-- How many headers a head may have, and the status that stands for one that is too long, after which
-- nginx closes.
local HEADERS, TOO_LONG = 100, 414

-- How many headers and Hosts there are, whether there is a body of a told length or a chunked one, and whether there
-- are conditions. Names are told apart by their length first.
local function look()
    local list, count = headers(false)
    local hosts, told, chunked, conditional = 0, false, false, false
    for i = 0, count - 1 do
        local key = list[i].key
        local length = key.len
        if length == 4 then
            if ffi.string(key.data, 4) == "host" then
                hosts = hosts + 1
            end
        elseif length == 14 then
            told = told or ffi.string(key.data, 14) == "content-length"
        elseif CONDITIONS[length] and key.data[0] == LETTER_I then
            conditional = conditional or ffi.string(key.data, length) == CONDITIONS[length]
        elseif length == 17 then
            chunked = chunked or ffi.string(key.data, 17) == "transfer-encoding"
        end
    end
    return count, hosts, told, chunked, conditional
end

local function answer(body)
    header["Content-Length"] = #body
    return print(body)
end

-- Says why a request is not answered as it asks.
local function refuse(status, reason)
    ngx.status = status
    header["X-Content-Type-Options"] = "nosniff"
    return answer('{"error":' .. json.quoted(reason) .. "}")
end

-- Throws a body away. One of unknown length is read, because only that tells when it is too large.
local function discard(told, chunked)
    if chunked then
        ngx.req.read_body()
    elseif told then
        ngx.req.discard_body()
    end
end

-- The method, if the request may be answered; otherwise it has been. nginx itself has refused what is
-- no request at all, but takes a second Host, and any number of headers. Conditions are gone then: an endpoint that has a use for
-- them, or for the headers as they came, reads them before.
local function begin()
    local count, hosts, told, chunked, conditional = look()
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
        discard(told, chunked)
        refuse(501, "the method is " .. method
            .. "; it may be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS")
        return nil
    end
    return method, told, chunked
end

-- The same for an endpoint that wants no body.
local function begin_without_body()
    local method, told, chunked = begin()
    if method then
        discard(told, chunked)
    end
    return method
end

-- The same for one that has parameters, which have to be what they may be. Returns them too.
local function begin_with_query(read_query)
    local method = begin_without_body()
    if not method then
        return nil
    end
    local query = read_query(var.args)
    if query.refusal then
        refuse(query.status, query.refusal)
        return nil
    end
    return method, query
end

return {
    answer = answer,
    begin = begin,
    begin_with_query = begin_with_query,
    begin_without_body = begin_without_body,
    discard = discard,
    headers = headers,
    refuse = refuse,
}
