-- Query parameters: numbers within limits. Parsed queries are cached.

local format = string.format

-- Limits for cached queries, and for the length of each.
local CACHED_QUERIES, CACHED_QUERY_BYTES = 512, 256

local function is_whole(value)
    return value:find "^%d+$"
end

local function is_decimal(value)
    return is_whole(value) or value:find "^%d+%.%d+$"
end

-- Limit for the part of an invalid value that is quoted.
local QUOTED_BYTES = 64

-- Returns the error of an invalid value. A huge number counts as above every limit.
local function invalid(spec, value, number)
    local is_above = number and number > spec.highest
    local reason = format(
        "invalid %s `%s`: must be %s from %s to %s",
        spec.name, value:sub(1, QUOTED_BYTES), spec.is, spec.lowest, spec.highest
    )
    return { status = is_above and 413 or 400, error = reason }
end

local function read(specs, query)
    local given = {}
    for argument in query:gmatch "[^&]+" do
        local name, value = argument:match "^([^=]*)=?(.*)$"
        -- Of several parameters of one name, the first one counts.
        given[name] = given[name] or value
    end
    local values = {}
    for _, spec in ipairs(specs) do
        local value = given[spec.name]
        if value then
            local number = spec.reads(value) and tonumber(value)
            if not number or number < spec.lowest or number > spec.highest then
                return invalid(spec, value, number)
            end
            values[spec.name] = number
        end
    end
    return values
end

-- Returns a parser of queries. It returns the given parameters by name, or `error` and its `status`.
local function reader(specs)
    local cache, count = {}, 0
    return function(query)
        query = query or ""
        local values = cache[query]
        if not values then
            values = read(specs, query)
            if #query <= CACHED_QUERY_BYTES then
                if count == CACHED_QUERIES then
                    cache, count = {}, 0
                end
                cache[query] = values
                count = count + 1
            end
        end
        return values
    end
end

local function whole(name, is, lowest, highest)
    return { name = name, is = is, lowest = lowest, highest = highest, reads = is_whole }
end

local function bytes(name, lowest, highest)
    return whole(name, "a whole number of bytes", lowest, highest)
end

local function seconds(name, lowest, highest)
    return {
        name = name, is = "a number of seconds", lowest = lowest, highest = highest,
        reads = is_decimal,
    }
end

return { reader = reader, whole = whole, bytes = bytes, seconds = seconds, error = invalid }
