local a = 1
  --< part/now.lua
-->
