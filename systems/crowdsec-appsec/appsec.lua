-- Sends each request, with its body, to CrowdSec AppSec and acts on the verdict. The subrequest goes through a
-- location of nginx, which keeps connections to AppSec alive.

local capture, exit, log = ngx.location.capture, ngx.exit, ngx.log
local get_body_data, get_body_file = ngx.req.get_body_data, ngx.req.get_body_file
local get_method, read_body = ngx.req.get_method, ngx.req.read_body
local get_headers, clear_header, set_header = ngx.req.get_headers, ngx.req.clear_header, ngx.req.set_header

local FORBIDDEN, FAILED = 403, 502

-- Returns the whole body, or nil. A body larger than the buffer is in a file.
local function body()
    read_body()
    local data = get_body_data()
    if data then
        return data
    end
    local path = get_body_file()
    if not path then
        return nil
    end
    local file = assert(io.open(path, "rb"))
    data = file:read("*a")
    file:close()
    return data
end

-- Joins headers that the client has sent several times, as a subrequest has only the last of some, such as Content-Type.
-- The origin gets the joined ones as well.
local function join_headers()
    for name, values in pairs(get_headers(0)) do
        if type(values) == "table" then
            clear_header(name)
            set_header(name, table.concat(values, name == "cookie" and "; " or ", "))
        end
    end
end

local function check()
    join_headers()
    local data = body()
    local response = capture("/appsec", {
        method = data and ngx.HTTP_POST or ngx.HTTP_GET,
        body = data,
        vars = { appsec_verb = get_method() },
    })
    if response.status == 200 then
        return
    end
    if response.status == FORBIDDEN then
        return exit(FORBIDDEN)
    end
    -- Fails closed: a WAF that does not respond must not look fast.
    log(ngx.ERR, "AppSec responded with status ", response.status)
    return exit(FAILED)
end

return { check = check }
