if not (known and known >= 60000 and known <= 2 ^ 52) then
  error('known must be a minute or more')
end
