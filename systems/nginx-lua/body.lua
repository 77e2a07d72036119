-- A body that nginx has read.

local get_body_data, get_body_file = ngx.req.get_body_data, ngx.req.get_body_file

local PIECE_BYTES = 64 * 1024

-- Hands it to `take`, piece by piece. One that is too large for memory is in a file, and so is a chunked
-- one that is not, but for the lines of its chunks.
local function replay(take)
    local path = get_body_file()
    if not path then
        take(get_body_data() or "")
        return
    end
    local file = assert(io.open(path, "rb"))
    for piece in function() return file:read(PIECE_BYTES) end do
        take(piece)
    end
    file:close()
end

return { replay = replay }
