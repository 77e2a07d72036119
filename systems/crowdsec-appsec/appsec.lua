-- Asks CrowdSec's AppSec about a request before it goes on: with its body where it has one. The question
-- goes through a location of nginx, which keeps the connections to AppSec open.

local capture, exit, log = ngx.location.capture, ngx.exit, ngx.log
local get_body_data, get_body_file = ngx.req.get_body_data, ngx.req.get_body_file
local get_method, read_body = ngx.req.get_method, ngx.req.read_body

local FORBIDDEN, FAILED = 403, 502

-- The whole body; nothing where there is none. One that is larger than the buffer is in a file.
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

local function check()
    local data = body()
    local answer = capture("/appsec", {
        method = data and ngx.HTTP_POST or ngx.HTTP_GET,
        body = data,
        vars = { appsec_verb = get_method() },
    })
    if answer.status == 200 then
        return
    end
    if answer.status == FORBIDDEN then
        return exit(FORBIDDEN)
    end
    -- Whoever is not heard lets nothing through: a WAF that is not there must not pass for a fast one.
    log(ngx.ERR, "AppSec answers ", answer.status)
    return exit(FAILED)
end

return { check = check }
