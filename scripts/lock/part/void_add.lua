-- add_void is the list of void tokens with this one in it, for 10 s from now. A long list drops its oldest.
local function add_void(void, token)
  local tokens = void_lives(void) and string.match(string.sub(void, -1500), ',.*$') or ''
  local added = is_void(tokens, token) and '' or ',' .. token
  return string.format('%.0f', time[1] + 10) .. tokens .. added
end
