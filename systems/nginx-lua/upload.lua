-- /upload: size, duration and parts of a request body.

local body = require "body"
local clock = require "clock"
local json = require "json"
local multipart = require "multipart"
local request = require "request"

local format = string.format
local now = clock.now
local read_body = ngx.req.read_body
local var = ngx.var

-- Limit for bodies that nginx reads into memory, the value of client_body_buffer_size.
local MEMORY_BYTES = 1024 * 1024
local PIECE_BYTES = 64 * 1024

-- Calls `receive` with each piece of a body of known length. Returns true if the body is complete.
local function stream(length, receive)
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
        receive(piece)
        left = left - #piece
    end
    return true
end

local function ignore()
end

-- Returns the size of a plain body, or nil if the client disconnects.
local function count(length)
    if length and length > MEMORY_BYTES then
        return stream(length, ignore) and length
    end
    read_body()
    -- Set for a chunked body as well by now.
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

-- Returns the size of a multipart body and its parser, or nil if the client disconnects.
local function parse(boundary, length)
    local parser = multipart.parser(boundary)
    local bytes = 0
    local function receive(piece)
        bytes = bytes + #piece
        multipart.feed(parser, piece)
    end
    if length then
        if not stream(length, receive) then
            return nil
        end
    else
        -- The module cannot stream chunked bodies.
        read_body()
        body.read_pieces(receive)
    end
    multipart.finish(parser)
    return bytes, parser
end

local function upload()
    local start = now()
    local method, has_length, chunked = request.start()
    if not method then
        return
    end
    if method ~= "POST" and method ~= "PUT" then
        request.discard(has_length, chunked)
        ngx.header["Allow"] = "POST, PUT"
        return request.respond_error(
            405, "method `" .. method .. "` is not allowed: must be POST or PUT"
        )
    end
    local length = not chunked and (tonumber(var.content_length) or 0) or nil
    local boundary = multipart.boundary(var.content_type)
    if boundary == nil then
        local size = count(length)
        if not size then
            return ngx.exit(ngx.HTTP_CLOSE)
        end
        return request.respond(format('{"size":%d,"time":%.6f}', size, now() - start))
    end
    if boundary == false then
        request.discard(has_length, chunked)
        return request.respond_error(
            400,
            "malformed multipart/form-data: Content-Type must have a boundary of 1 to 70 characters"
        )
    end
    local size, parser = parse(boundary, length)
    if not size then
        return ngx.exit(ngx.HTTP_CLOSE)
    end
    if parser.error then
        return request.respond_error(
            parser.status, "malformed multipart/form-data: " .. parser.error
        )
    end
    local lines = {}
    for i, part in ipairs(parser.parts) do
        lines[i] = part_line(part)
    end
    ngx.header["X-Content-Type-Options"] = "nosniff"
    return request.respond(format(
        '{"size":%d,"time":%.6f,"parts":[%s\n]}', size, now() - start, table.concat(lines, ",")
    ))
end

return { upload = upload }
