-- /download: so many bytes, chunk by chunk, whole or in part.

local filler = require "filler"
local parameters = require "parameters"
local request = require "request"

local header = ngx.header
local var = ngx.var

local CHUNK_BYTES, CHUNKS = 2048, 10
local read_query = parameters.reader {
    parameters.bytes("chunk_size", 1, 1024 * 1024),
    parameters.bytes("size", 0, 1024 * 1024 * 1024),
}

-- Whether a list of tags (RFC 9110, section 8.8.3) has this one. A weak tag is of the same file too
-- where it does not matter that every byte is the same.
local function names(list, tag, weak_too)
    if list:match "^%s*%*%s*$" then
        return true
    end
    for weak, found in list:gmatch '(W?/?)("[^"]*")' do
        if found == tag and (weak == "" or (weak_too and weak == "W/")) then
            return true
        end
    end
    return false
end

-- The part that a Range asks for, from its first byte to its last; nothing where it is the whole, and
-- `false` where there is no such part. Several ranges are answered with the whole.
local function part(range, size)
    local first, last = range:match "^[Bb][Yy][Tt][Ee][Ss]=[%s,]*(%d*)%-(%d*)[%s,]*$"
    if not first or (first == "" and last == "") then
        return nil
    end
    first, last = tonumber(first), tonumber(last)
    if not first then
        if last == 0 then
            return false
        end
        -- The last bytes; of an empty file, all of it.
        if size == 0 then
            return nil
        end
        return math.max(size - last, 0), size - 1
    end
    if last and last < first then
        return nil
    end
    if first >= size then
        return false
    end
    return first, math.min(last or size - 1, size - 1)
end

-- Whether the conditions of the request (RFC 9110, section 13.2.2) leave something to send; without a
-- date of the file, those on dates do not count. Otherwise the status instead.
local function unmet(method, tag, match, none_match)
    if match and not names(match, tag, false) then
        return 412
    end
    if none_match and names(none_match, tag, true) then
        return (method == "GET" or method == "HEAD") and 304 or 412
    end
end

local function download()
    local match, none_match = var.http_if_match, var.http_if_none_match
    local method, query = request.begin_with_query(read_query)
    if not method then
        return
    end
    local chunk_bytes = query.chunk_size or CHUNK_BYTES
    local size = query.size or CHUNKS * chunk_bytes
    local tag = '"' .. size .. '"'

    local status = unmet(method, tag, match, none_match)
    if status == 304 then
        ngx.status = 304
        header["ETag"] = tag
        return
    elseif status then
        return request.refuse(status, "the ETag is " .. tag .. ", which the condition excludes")
    end

    header["ETag"] = tag
    header["Accept-Ranges"] = "bytes"
    local first, last = 0, size - 1
    local range = method == "GET" and var.http_range
    local if_range = range and var.http_if_range
    if range and (not if_range or if_range == tag) then
        local from, to = part(range, size)
        if from == false then
            header["Content-Range"] = "bytes */" .. size
            return request.refuse(
                416, "the range begins behind the end; there are " .. size .. " bytes"
            )
        elseif from then
            first, last = from, to
            ngx.status = 206
            header["Content-Range"] = "bytes " .. first .. "-" .. last .. "/" .. size
        end
    end
    header["Content-Type"] = "application/octet-stream"
    header["Content-Length"] = last - first + 1
    if method == "HEAD" or last < first then
        return ngx.send_headers()
    end
    return filler.send(last - first + 1, chunk_bytes)
end

return { download = download }
