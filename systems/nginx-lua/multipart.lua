-- multipart/form-data (RFC 7578), piece by piece as it comes: what is kept of it is names and sizes.

-- What one part's headers may have, and how many parts there may be.
local HEAD_BYTES, PARTS = 4096, 1000

local find, lower, sub = string.find, string.lower, string.sub

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

-- The parameters of a header such as `form-data; name="a"`, by name in lower case.
local function header_parameters(value)
    local found = {}
    local at = find(value, ";", 1, true)
    while at do
        local _, stop, name = find(value, "^;%s*([^=;%s]+)%s*=%s*", at)
        if not stop then
            return found
        end
        at = stop + 1
        local text
        if sub(value, at, at) == '"' then
            text, at = quoted(value, at + 1)
            if not text then
                return found
            end
        else
            _, at, text = find(value, "^([^;%s]*)", at)
            at = at + 1
        end
        found[lower(name)] = found[lower(name)] or text
        at = find(value, ";", at, true)
    end
    return found
end

-- The boundary that a Content-Type names; nothing where it is no multipart/form-data, and `false` where
-- it is one without a usable boundary.
local function boundary(content_type)
    if not content_type or not find(lower(content_type), "^multipart/form%-data%s*;?") then
        return nil
    end
    local named = header_parameters(content_type).boundary
    return named and #named >= 1 and #named <= 70 and named or false
end

local function part_of(head)
    for line in head:gmatch "[^\r\n]+" do
        local name, value = line:match "^([^:]+):%s*(.*)$"
        if name and lower(name) == "content-disposition" and find(lower(value), "^form%-data%s*;") then
            local parameters = header_parameters(value)
            if parameters.name then
                return { name = parameters.name, filename = parameters.filename, size = 0 }
            end
        end
    end
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
    if (start or #held) > HEAD_BYTES then
        fail(self, 413, "the headers of a part may have " .. HEAD_BYTES .. " bytes")
        return false
    end
    if not start then
        return false
    end
    if #self.parts == PARTS then
        fail(self, 413, "it may have " .. PARTS .. " parts")
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
