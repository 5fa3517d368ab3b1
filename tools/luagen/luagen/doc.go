// Package luagen turns annotated Redis Lua scripts into typed Go functions.
//
// The steps are Load (read a folder), Parse (header and body), Check (compare the two and lint the body)
// and Emit (print Go). Each step is a pure function of the one before; only Load and Apply touch the disk.
// Positions are 1-based and columns count bytes.
package luagen
