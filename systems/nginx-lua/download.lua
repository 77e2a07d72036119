-- /download: filler in chunks, with conditions and ranges.

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

-- Returns true if a list of entity tags (RFC 9110, section 8.8.3) contains `tag`. A weak tag matches only
-- if `weak_too`.
local function contains_tag(list, tag, weak_too)
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

-- Returns the first and last byte of a Range; nil for the whole file, as for several ranges, and `false`
-- if the range is not satisfiable.
local function select_range(range, size)
    local first, last = range:match "^[Bb][Yy][Tt][Ee][Ss]=[%s,]*(%d*)%-(%d*)[%s,]*$"
    if not first or (first == "" and last == "") then
        return nil
    end
    first, last = tonumber(first), tonumber(last)
    if not first then
        if last == 0 then
            return false
        end
        -- A suffix; of an empty file, the whole file.
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

-- Evaluates preconditions (RFC 9110, section 13.2.2). Returns the status of the response, or nil if they
-- hold. Conditions on dates are ignored, as the file has no date.
local function failed_condition(method, tag, match, none_match)
    if match and not contains_tag(match, tag, false) then
        return 412
    end
    if none_match and contains_tag(none_match, tag, true) then
        return (method == "GET" or method == "HEAD") and 304 or 412
    end
end

local function download()
    local match, none_match = var.http_if_match, var.http_if_none_match
    local method, query = request.start_with_query(read_query)
    if not method then
        return
    end
    local chunk_bytes = query.chunk_size or CHUNK_BYTES
    local size = query.size or CHUNKS * chunk_bytes
    local tag = '"' .. size .. '"'

    local status = failed_condition(method, tag, match, none_match)
    if status == 304 then
        ngx.status = 304
        header["ETag"] = tag
        return
    elseif status then
        return request.respond_error(status, "precondition failed: the ETag is " .. tag)
    end

    header["ETag"] = tag
    header["Accept-Ranges"] = "bytes"
    local first, last = 0, size - 1
    local range = method == "GET" and var.http_range
    local if_range = range and var.http_if_range
    if range and (not if_range or if_range == tag) then
        local from, to = select_range(range, size)
        if from == false then
            header["Content-Range"] = "bytes */" .. size
            return request.respond_error(
                416, "range not satisfiable: the size is " .. size .. " bytes"
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
