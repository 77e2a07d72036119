-- Incremental parser of multipart/form-data (RFC 7578). Keeps names and sizes, no contents.

-- Limits for the headers of a part, and for parts.
local HEAD_BYTES, PARTS = 4096, 1000

local find, lower, match, sub = string.find, string.lower, string.match, string.sub

-- Returns the quoted text that starts at `at`, and its end. Only quotes and backslashes are escaped by a
-- backslash: browsers send filenames with literal ones.
local function quoted(value, at)
    local pieces = {}
    while true do
        local _, stop, plain, mark = find(value, '^([^"\\]*)(["\\])', at)
        if not stop then
            return nil
        end
        pieces[#pieces + 1] = plain
        at = stop + 1
        if mark == '"' then
            return table.concat(pieces), at
        end
        local following = sub(value, at, at)
        if following == '"' or following == "\\" then
            pieces[#pieces + 1] = following
            at = at + 1
        else
            pieces[#pieces + 1] = "\\"
        end
    end
end

local NO_SPACE = "[^ \t\n\f\r]"

-- Removes the space around a text.
local function trimmed(text)
    local start = find(text, NO_SPACE)
    return start and match(text, "^.*" .. NO_SPACE, start) or ""
end

-- Parses a header such as `form-data; name="a"`. Returns the value in lower case, and the parameters in
-- order, their names in lower case, up to the first syntax error.
local function header_parameters(header)
    local behind = #header + 1
    local at = find(header, ";", 1, true) or behind
    local value, found = lower(trimmed(sub(header, 1, at - 1))), {}
    while sub(header, at, at) == ";" do
        local equals = find(header, "=", at, true)
        if not equals then
            break
        end
        local name = lower(trimmed(sub(header, at + 1, equals - 1)))
        local start = find(header, NO_SPACE, equals + 1) or behind
        local text
        if sub(header, start, start) == '"' then
            text, at = quoted(header, start + 1)
            if not text then
                break
            end
            at = find(header, NO_SPACE, at) or behind
        else
            at = find(header, ";", start, true) or behind
            text = trimmed(sub(header, start, at - 1))
        end
        found[#found + 1] = { name = name, text = text }
    end
    return value, found
end

-- Returns the boundary of a Content-Type; nil for other types than multipart/form-data, and `false` if the
-- boundary is missing or invalid.
local function boundary(content_type)
    local value, parameters = header_parameters(content_type or "")
    if value ~= "multipart/form-data" then
        return nil
    end
    for _, parameter in ipairs(parameters) do
        if parameter.name == "boundary" then
            local named = parameter.text
            return #named >= 1 and #named <= 70 and not find(named, "[^ -~]") and named
        end
    end
    return false
end

-- Parses the headers of a part. Of several names or filenames, the last one counts.
local function part_of(head)
    local last = {}
    for line in head:gmatch "[^\n]+" do
        local name, content = match(line, "^([^:]*):(.*)$")
        if name and lower(name) == "content-disposition" then
            local value, parameters = header_parameters(content)
            for _, parameter in ipairs(value == "form-data" and parameters or {}) do
                last[parameter.name] = parameter.text
            end
        end
    end
    return last.name and { name = last.name, filename = last.filename, size = 0 }
end

-- Creates a parser. The first boundary may start the body, so it begins as if after CR LF.
local function parser(named)
    return { delimiter = "\r\n--" .. named, held = "\r\n", state = "data", parts = {}, part = nil }
end

local function fail(self, status, reason)
    self.status, self.error, self.held = status, reason, ""
end

-- Each state consumes from `held` what it can decide on, and returns true if there is more to do.
local states = {}

function states.data(self)
    local held, part = self.held, self.part
    local start, stop = find(held, self.delimiter, 1, true)
    if not start then
        -- The end of `held` may be the start of a boundary.
        local certain = math.max(#held - #self.delimiter + 1, 0)
        if part then
            part.size = part.size + certain
        end
        self.held = sub(held, certain + 1)
        return false
    end
    if part then
        part.size = part.size + start - 1
    end
    self.held = sub(held, stop + 1)
    self.state = "boundary"
    return true
end

function states.boundary(self)
    local held = self.held
    if sub(held, 1, 2) == "--" then
        self.state, self.held = "done", ""
        return false
    end
    local _, stop = find(held, "^[ \t]*\r\n")
    if stop then
        if #self.parts == PARTS then
            fail(self, 413, "more than " .. PARTS .. " parts")
            return false
        end
        -- CR LF stays: an empty head is that and one more.
        self.held = sub(held, stop - 1)
        self.state = "head"
        return true
    end
    if #held > HEAD_BYTES or not (find(held, "^[ \t]*\r?$") or held == "-") then
        fail(self, 400, "unexpected bytes after a boundary")
    end
    return false
end

function states.head(self)
    local held = self.held
    local start, stop = find(held, "\r\n\r\n", 1, true)
    -- CR LF of the boundary, before the head, does not count; CR LF CR LF at `start` does.
    if (start and start + 1 or #held - 1) > HEAD_BYTES then
        fail(self, 413, "headers of a part exceed " .. HEAD_BYTES .. " bytes")
        return false
    end
    if not start then
        return false
    end
    self.part = part_of(sub(held, 3, start - 1))
    if not self.part then
        fail(self, 400, "part without a name in Content-Disposition: form-data")
        return false
    end
    self.parts[#self.parts + 1] = self.part
    self.held = sub(held, stop + 1)
    self.state = "data"
    return true
end

-- Ignores the rest after the final boundary.
function states.done(self)
    self.held = ""
    return false
end

-- Parses the next piece of the body. After an error, `error` is its text and `status` its status.
local function feed(self, piece)
    if self.error then
        return
    end
    self.held = self.held .. piece
    while not self.error and states[self.state](self) do
    end
end

-- Ends the body.
local function finish(self)
    if self.state ~= "done" and not self.error then
        fail(self, 400, "missing final boundary")
    end
end

return { boundary = boundary, parser = parser, feed = feed, finish = finish }
