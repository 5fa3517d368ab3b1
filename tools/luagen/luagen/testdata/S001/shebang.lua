#!lua
--- Shebang does.
