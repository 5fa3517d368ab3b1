---@readonly

