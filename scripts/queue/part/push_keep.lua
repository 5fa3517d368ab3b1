-- A receipt that ends at once is none.
if not (tonumber(keep) and tonumber(keep) >= 1) then
  error('keep must be 1 or more')
end
