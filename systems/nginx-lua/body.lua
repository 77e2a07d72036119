-- Access to a request body that nginx has read.

local get_body_data, get_body_file = ngx.req.get_body_data, ngx.req.get_body_file

local PIECE_BYTES = 64 * 1024

-- Calls `receive` with each piece of the body. A large body is in a file; so is a chunked one that is
-- large only with its size lines.
local function read_pieces(receive)
    local path = get_body_file()
    if not path then
        receive(get_body_data() or "")
        return
    end
    local file = assert(io.open(path, "rb"))
    for piece in function() return file:read(PIECE_BYTES) end do
        receive(piece)
    end
    file:close()
end

return { read_pieces = read_pieces }
