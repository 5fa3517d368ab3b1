--- EveryType takes and gives back one value of each type.
---@contract all-or-nothing
---@key   store  hash
---@arg   a_int     int  min=-5 max=5
---@arg   b_int     int
---@arg   c_uint    uint  max=10
---@arg   d_uint    uint
---@arg   e_bool    bool
---@arg   f_float   float
---@arg   g_string  string
---@arg   h_bytes   bytes
---@arg   i_ms      ms  min=1 max=60000  how long,
---                 told on two lines
---@arg   j_s       s
---@arg   k_at      time.ms
---@arg   l_at      time.s
---@arg   m_mode    enum(slow=-1, even=0, fast=1)
---@arg   n_int     int?
---@arg   o_string  string?
---@arg   p_bytes   bytes?
---@arg   q_at      time.ms?
---@arg   r_mode    enum(on=1, off=0)?
---@reply (a_int int, d_uint uint, e_bool bool, f_float float, g_string string,
---       h_bytes bytes, i_ms ms, j_s s, k_at time.ms, l_at time.s, m_mode enum(slow=-1, even=0, fast=1),
---       n_int int?, o_string string?, r_mode enum(on=1, off=0)?,
---       list string[], flags bool[], holes int?[], modes enum(x=1, y=2)[])

local store = KEYS[1]
local a_int, b_int, c_uint, d_uint, e_bool = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5] == '1'
local f_float, g_string, h_bytes, i_ms, j_s = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local k_at, l_at, m_mode = ARGV[11], ARGV[12], ARGV[13]
local n_int = tonumber(ARGV[14]) or false
local o_string = ARGV[15] ~= '' and ARGV[15] or false
local p_bytes, q_at, r_mode = ARGV[16], ARGV[17], ARGV[18]

redis.call('HSET', store, 'b', b_int, 'c', c_uint, 'p', p_bytes, 'q', q_at)
local list = {g_string, 'b'}
list[#list + 1] = 'c'
return {
  a_int, d_uint, e_bool and 1 or 0, f_float, g_string, h_bytes, i_ms, j_s, k_at, l_at, m_mode,
  n_int, o_string, r_mode ~= '' and r_mode or false,
  list, {1, 0}, {1, false}, {2, 1},
}
