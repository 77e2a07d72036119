-- /upload: counts what is sent to it.

local body = require "body"
local clock = require "clock"
local json = require "json"
local multipart = require "multipart"
local request = require "request"

local format = string.format
local now = clock.now
local read_body = ngx.req.read_body
local var = ngx.var

-- A plain body up to this size is read into memory by nginx; it is what client_body_buffer_size says.
local MEMORY_BYTES = 1024 * 1024
local PIECE_BYTES = 64 * 1024

-- Hands a body of a told length to `take`, piece by piece as it comes. Says whether all of it came.
local function stream(length, take)
    if length == 0 then
        return true
    end
    local socket = ngx.req.socket()
    if not socket then
        return false
    end
    local left = length
    while left > 0 do
        local piece = socket:receiveany(PIECE_BYTES)
        if not piece then
            return false
        end
        take(piece)
        left = left - #piece
    end
    return true
end

local function ignore()
end

-- The bytes of a plain body; nothing where the client is gone.
local function count(length)
    if length and length > MEMORY_BYTES then
        return stream(length, ignore) and length
    end
    read_body()
    -- Of a chunked body, this is known by now.
    return tonumber(var.content_length) or 0
end

local function part_line(part)
    return format(
        '\n{"name":%s,"filename":%s,"size":%d}',
        json.quoted(part.name),
        part.filename and json.quoted(part.filename) or "null",
        part.size
    )
end

-- The bytes of a multipart body, and its parser; nothing where the client is gone.
local function parse(boundary, length)
    local parser = multipart.parser(boundary)
    local bytes = 0
    local function take(piece)
        bytes = bytes + #piece
        multipart.feed(parser, piece)
    end
    if length then
        if not stream(length, take) then
            return nil
        end
    else
        -- The module cannot stream chunked bodies.
        read_body()
        body.replay(take)
    end
    multipart.finish(parser)
    return bytes, parser
end

local function upload()
    local start = now()
    local method, told, chunked = request.begin()
    if not method then
        return
    end
    if method ~= "POST" and method ~= "PUT" then
        request.discard(told, chunked)
        ngx.header["Allow"] = "POST, PUT"
        return request.refuse(405, "the method is " .. method .. "; it may be POST or PUT")
    end
    local length = not chunked and (tonumber(var.content_length) or 0) or nil
    local boundary = multipart.boundary(var.content_type)
    if boundary == nil then
        local size = count(length)
        if not size then
            return ngx.exit(ngx.HTTP_CLOSE)
        end
        return request.answer(format('{"size":%d,"time":%.6f}', size, now() - start))
    end
    if boundary == false then
        request.discard(told, chunked)
        return request.refuse(
            400,
            "the body is not multipart/form-data: its Content-Type needs a boundary of 1 to 70 characters"
        )
    end
    local size, parser = parse(boundary, length)
    if not size then
        return ngx.exit(ngx.HTTP_CLOSE)
    end
    if parser.trouble then
        return request.refuse(
            parser.status, "the body is not multipart/form-data: " .. parser.trouble
        )
    end
    local lines = {}
    for i, part in ipairs(parser.parts) do
        lines[i] = part_line(part)
    end
    ngx.header["X-Content-Type-Options"] = "nosniff"
    return request.answer(format(
        '{"size":%d,"time":%.6f,"parts":[%s\n]}', size, now() - start, table.concat(lines, ",")
    ))
end

return { upload = upload }
