-- A turn for other requests.

local sleep = ngx.sleep

-- The shortest time that is one. After none, which nginx takes for a timer that is due at once, it goes on
-- here before it looks at any connection, unless it has a patch that its packages do not have.
local SECONDS = 0.001

local function give()
    sleep(SECONDS)
end

return { give = give }
