package luagen

import (
	"slices"
	"strings"
)

// reservedCodes are first words that Redis or its clients act on: go-redis sends a script again on some of them.
var reservedCodes = []string{
	"ASK", "BUSY", "BUSYGROUP", "BUSYKEY", "CLUSTERDOWN", "CROSSSLOT", "ERR", "EXECABORT", "INPROG", "IOERR", "LOADING",
	"MASTERDOWN",
	"MISCONF", "MOVED", "NOAUTH", "NOGOODSLAVE", "NOGROUP", "NOMASTERLINK", "NOPERM", "NOPROTO", "NOQUORUM",
	"NOREPLICAS",
	"NOSCRIPT", "NOTBUSY", "OOM", "READONLY", "REDIRECT", "TRYAGAIN", "UNBLOCKED", "UNKILLABLE", "WRONGPASS",
	"WRONGTYPE",
}

func (h *headerParser) checkCodes() {
	seen := map[string]bool{}
	for _, c := range h.Errors {
		switch {
		case !isCode(c.Name):
			h.fail(c.Pos, len(c.Name), "H003", "an error code is upper case",
				"use letters, digits and _, as in NOT_HELD")
		case slices.Contains(reservedCodes, c.Name):
			h.fail(
				c.Pos,
				len(c.Name),
				"E002",
				c.Name+" is a code of Redis itself",
				"clients act on it, some by sending the script again; choose another word",
			)
		case h.Guard != "" && c.Name == fenced:
			h.fail(
				c.Pos,
				len(c.Name),
				"E002",
				fenced+" is the answer of the guard",
				"choose another word, so that callers can tell the two",
			)
		case seen[c.Name]:
			h.fail(c.Pos, len(c.Name), "H004", c.Name+" is declared twice", "keep one")
		}
		seen[c.Name] = true
	}
}

func isCode(s string) bool {
	if s == "" || s[0] < 'A' || s[0] > 'Z' {
		return false
	}
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}
