-- multipart/form-data (RFC 7578), piece by piece as it comes: what is kept of it is names and sizes.

-- What one part's headers may have, and how many parts there may be.
local HEAD_BYTES, PARTS = 4096, 1000

local find, lower, match, sub = string.find, string.lower, string.match, string.sub

-- The text in quotes that begins at `at`, and where it ends. A backslash makes a quote or itself plain;
-- before anything else it stands for itself, as in the file names of old.
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

-- A text without the space around it.
local function trimmed(text)
    local start = find(text, NO_SPACE)
    return start and match(text, "^.*" .. NO_SPACE, start) or ""
end

-- A header such as `form-data; name="a"`: what comes before the parameters, in lower case, and the
-- parameters in their order, their names in lower case. What is no parameter ends them.
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

-- The boundary that a Content-Type names; nothing where it is no multipart/form-data, and `false` where
-- it is one without a usable boundary.
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

-- The last of a name counts.
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

-- A parser that has seen nothing yet. The first boundary may be the first thing in the body, so it
-- begins as if a line had ended before it.
local function parser(named)
    return { delimiter = "\r\n--" .. named, held = "\r\n", state = "data", parts = {}, part = nil }
end

local function fail(self, status, trouble)
    self.status, self.trouble, self.held = status, trouble, ""
end

-- Each state takes what is held, keeps what it cannot decide on, and says whether there is more to do.
local states = {}

function states.data(self)
    local held, part = self.held, self.part
    local start, stop = find(held, self.delimiter, 1, true)
    if not start then
        -- The end of what is held may be the begin of a boundary.
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
            fail(self, 413, "it may have " .. PARTS .. " parts")
            return false
        end
        -- The line's end stays: a head without a header is that and one more.
        self.held = sub(held, stop - 1)
        self.state = "head"
        return true
    end
    if #held > HEAD_BYTES or not (find(held, "^[ \t]*\r?$") or held == "-") then
        fail(self, 400, "something follows a boundary on its line")
    end
    return false
end

function states.head(self)
    local held = self.held
    local start, stop = find(held, "\r\n\r\n", 1, true)
    -- The two bytes before the head, the end of the boundary's line, do not count; the four at `start`, of
    -- which the last two are an empty line, do.
    if (start and start + 1 or #held - 1) > HEAD_BYTES then
        fail(self, 413, "the headers of a part may have " .. HEAD_BYTES .. " bytes")
        return false
    end
    if not start then
        return false
    end
    self.part = part_of(sub(held, 3, start - 1))
    if not self.part then
        fail(self, 400, "a part has no Content-Disposition: form-data with a name")
        return false
    end
    self.parts[#self.parts + 1] = self.part
    self.held = sub(held, stop + 1)
    self.state = "data"
    return true
end

-- What follows the last boundary is not looked at.
function states.done(self)
    self.held = ""
    return false
end

-- Takes the next piece of the body. What is wrong with it is `trouble`, in words, with a `status`.
local function feed(self, piece)
    if self.trouble then
        return
    end
    self.held = self.held .. piece
    while not self.trouble and states[self.state](self) do
    end
end

-- Says that there is no more.
local function finish(self)
    if self.state ~= "done" and not self.trouble then
        fail(self, 400, "the last boundary is missing")
    end
end

return { boundary = boundary, parser = parser, feed = feed, finish = finish }
