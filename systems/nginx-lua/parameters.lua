-- The parameters of a query: numbers within limits. What a query says is worked out once and kept.


local format = string.format

-- How many queries are kept, and how long one may be to be kept.
local KEPT, KEPT_BYTES = 512, 256

local function is_whole(value)
    return value:find "^%d+$"
end

local function is_decimal(value)
    return is_whole(value) or value:find "^%d+%.%d+$"
end

-- How much of a value is shown.
local EXCERPT_BYTES = 64

-- A number too long to be told apart from others is above every limit.
local function refusal(spec, value, number)
    local is_above = number and number > spec.highest
    local reason = format(
        "%s is %s; it may be %s from %s to %s",
        spec.name, '"' .. value:sub(1, EXCERPT_BYTES) .. '"', spec.is, spec.lowest, spec.highest
    )
    return { status = is_above and 413 or 400, refusal = reason }
end

local function read(specs, query)
    local given = {}
    for argument in query:gmatch "[^&]+" do
        local name, value = argument:match "^([^=]*)=?(.*)$"
        -- The first of a name counts.
        given[name] = given[name] or value
    end
    local values = {}
    for _, spec in ipairs(specs) do
        local value = given[spec.name]
        if value then
            local number = spec.reads(value) and tonumber(value)
            if not number or number < spec.lowest or number > spec.highest then
                return refusal(spec, value, number)
            end
            values[spec.name] = number
        end
    end
    return values
end

-- A function that says what a query asks for: the parameters by name, those that are not in it left
-- out, or `refusal` in words and its `status`.
local function reader(specs)
    local kept, count = {}, 0
    return function(query)
        query = query or ""
        local values = kept[query]
        if not values then
            values = read(specs, query)
            if #query <= KEPT_BYTES then
                if count == KEPT then
                    kept, count = {}, 0
                end
                kept[query] = values
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

return { reader = reader, whole = whole, bytes = bytes, seconds = seconds, refusal = refusal }
