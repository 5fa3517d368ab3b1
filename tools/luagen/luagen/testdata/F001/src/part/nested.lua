local a = 1
do
  --< part/nested.lua
end
