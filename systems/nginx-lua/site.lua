-- The benchmark site: handlers of all endpoints, for nginx.conf.

local devices = require "devices"
local inspection = require "inspection"
local page = require "page"

return {
    load = page.load,
    any = page.any,
    download = require("download").download,
    echo = inspection.echo,
    headers = inspection.headers,
    index = page.index,
    method = inspection.method,
    root = page.root,
    sleep = require("sleep").sleep,
    status = inspection.status,
    upload = require("upload").upload,
    urandom = devices.urandom,
    zero = devices.zero,
}
