-- A text as a JSON string.

local byte, format, gsub, match = string.byte, string.format, string.gsub, string.match

local SHORT = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function escaped(character)
    return SHORT[character] or format("\\u%04x", byte(character))
end

-- The sequences of UTF-8 (RFC 3629, section 4).
local SEQUENCES = {
    "^[\194-\223][\128-\191]",
    "^\224[\160-\191][\128-\191]",
    "^[\225-\236\238\239][\128-\191][\128-\191]",
    "^\237[\128-\159][\128-\191]",
    "^\240[\144-\191][\128-\191][\128-\191]",
    "^[\241-\243][\128-\191][\128-\191][\128-\191]",
    "^\244[\128-\143][\128-\191][\128-\191]",
}

-- What JSON cannot hold, bytes that are no UTF-8, becomes the replacement character.
local function valid(text)
    local pieces, at = {}, 1
    while at <= #text do
        local piece = match(text, "^[%z\1-\127]+", at)
        for i = 1, #SEQUENCES do
            piece = piece or match(text, SEQUENCES[i], at)
        end
        pieces[#pieces + 1] = piece or "\239\191\189"
        at = at + (piece and #piece or 1)
    end
    return table.concat(pieces)
end

local function quoted(text)
    if match(text, "[\128-\255]") then
        text = valid(text)
    end
    return '"' .. gsub(text, '[%c"\\]', escaped) .. '"'
end

return { quoted = quoted }
