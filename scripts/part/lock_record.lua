-- lock_record is the record of a lock, see lock_acquire.lua: its one writer.
local function lock_record(mark, sign, token, from, lease, pause, releaser, text)
  return mark .. ' ' .. sign .. ' ' .. token .. ' ' .. from .. ' ' .. lease .. ' ' .. pause
    .. ' ' .. releaser .. ' ' .. text
end
