do
  local lease = 
end
