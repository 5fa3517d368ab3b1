package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// searches are the commands that a user has by acl --audit or --role page alone: SCAN shows the names of all keys.
var searches = regexp.MustCompile(`'[hz]?scan' command`)

// lacking is a command that the server does not have, by itself or inside a script.
var lacking = regexp.MustCompile(`(?i)\bunknown (redis |valkey )?command\b`)

// fullCure is that of a server above its maxmemory.
const fullCure = "the server is full: raise its maxmemory, or delete what is not needed"

const fullServer = "use a server that has all commands: this one renames some, its service refuses them, " +
	"or it is older than Redis 7.0"

const busyServer = "a script or function of a program runs too long: wait for it, or end it by redis-cli SCRIPT KILL " +
	"or FUNCTION KILL if it has written nothing"

const moreReplicas = "start them, or lower its min-replicas-to-write"

// cureOf is what to do about a refusal of the server, or empty, also where the text of the error says it.
func cureOf(err error) string {
	if errors.As(err, new(*reachError)) {
		return ""
	}
	var call *lua.Error                               // its detail is the reply to the attempt before one that had none
	quoted := errors.Is(err, sidekiq.ErrQueueRefused) // it has the reply in its text
	if !quoted && !isReply(err) && (!errors.As(err, &call) || call.Detail == "") {
		return ""
	}
	switch text := err.Error(); {
	case errors.Is(err, lua.ErrNotLoaded):
		return "run luatomic load as a user that may run SCRIPT LOAD, after each start and failover of the server"
	case lacksRights(text) && searches.MatchString(text):
		return "give this user what luatomic acl --audit prints, or --role page to one that only reads: " +
			"a search sees the names of all keys"
	case lacksRights(text):
		return "check --prefix: luatomic acl prints the rights that a user needs, luatomic doctor those that this " +
			"one lacks"
	case strings.Contains(text, "OOM ") && strings.Contains(text, "'maxmemory'"):
		return fullCure
	case strings.Contains(text, "READONLY "):
		return "name the master"
	case strings.Contains(text, "MISCONF "):
		return "the server cannot save its data and takes no writes: free its disk; " +
			"then, if a snapshot failed, run BGSAVE"
	case strings.Contains(text, "NOREPLICAS "):
		return "the server has too few replicas: " + moreReplicas
	case strings.Contains(text, "max number of clients"):
		return tooManyClients
	case strings.Contains(text, "BUSY "):
		return busyServer
	case strings.Contains(text, "WRONGTYPE "):
		return "another program writes that key: rename or delete it, and give that program or this one a prefix of " +
			"its own"
	case lacking.MatchString(text):
		return fullServer
	}
	return ""
}

// withCure is the error on one line, and its cure.
func withCure(err error) string {
	if cure := cureOf(err); cure == fullCure {
		return cure + "; " + oneLine(err) // at once, where much is refused: what to do comes first
	} else if cure != "" {
		return oneLine(err) + "; " + cure
	}
	return oneLine(err)
}

// lacksRights reports whether the text is of a command that the user may not run: by itself, or inside a script of
// Redis 7.0 or of a later server.
func lacksRights(text string) bool {
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "The user executing the script can't") ||
		strings.Contains(text, "ACL failure")
}
