-- Quoting of JSON strings.

local byte, char, format = string.byte, string.char, string.format
local gsub, match = string.gsub, string.match
local floor = math.floor

local SHORT = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function escaped(character)
    return SHORT[character] or format("\\u%04x", byte(character))
end

-- Multibyte sequences of UTF-8 (RFC 3629, section 4).
local SEQUENCES = {
    "^[\194-\223][\128-\191]",
    "^\224[\160-\191][\128-\191]",
    "^[\225-\236\238\239][\128-\191][\128-\191]",
    "^\237[\128-\159][\128-\191]",
    "^\240[\144-\191][\128-\191][\128-\191]",
    "^[\241-\243][\128-\191][\128-\191][\128-\191]",
    "^\244[\128-\143][\128-\191][\128-\191]",
}

local function is_utf8(text)
    local at = 1
    while at <= #text do
        local piece = match(text, "^[%z\1-\127]+", at)
        for i = 1, #SEQUENCES do
            piece = piece or match(text, SEQUENCES[i], at)
        end
        if not piece then
            return false
        end
        at = at + #piece
    end
    return true
end

-- Encodes a character of Latin-1 in UTF-8.
local function from_latin1(character)
    local code = byte(character)
    return char(192 + floor(code / 64), 128 + code % 64)
end

-- Bytes that are not UTF-8 are read as Latin-1, so that no two texts look the same.
local function quoted(text)
    if match(text, "[\128-\255]") and not is_utf8(text) then
        text = gsub(text, "[\128-\255]", from_latin1)
    end
    return '"' .. gsub(text, '[%c"\\]', escaped) .. '"'
end

return { quoted = quoted }
