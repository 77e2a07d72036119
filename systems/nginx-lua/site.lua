-- The benchmark site: every endpoint by the name that nginx.conf calls it by.

local devices = require "devices"
local mirror = require "mirror"
local page = require "page"

return {
    load = page.load,
    any = page.any,
    download = require("download").download,
    echo = mirror.echo,
    headers = mirror.headers,
    index = page.index,
    method = mirror.method,
    nap = require("nap").nap,
    root = page.root,
    status = mirror.status,
    upload = require("upload").upload,
    urandom = devices.urandom,
    zero = devices.zero,
}
