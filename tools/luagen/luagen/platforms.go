package luagen

import (
	"fmt"
	"slices"
	"strings"
)

// serverSet is a set of the servers that the table of commands was made from.
type serverSet uint8

const (
	onRedis7 serverSet = 1 << iota
	onRedis8
	onValkey8
	onValkey9

	onAll = onRedis7 | onRedis8 | onValkey8 | onValkey9
)

// platform is what a script finds where it runs.
type platform struct {
	commands serverSet // the table that counts
	lacks    []string  // globals and functions of redis that it does not have
	keys     bool      // refuses keys that are not in KEYS
}

// platforms are the targets of luagen -target. What they lack was measured on the servers of the table and on miniredis
// 2.40, and taken from the documentation for the others.
var platforms = map[string]platform{
	"redis7":  {commands: onRedis7, lacks: []string{"server", "os"}},
	"redis8":  {commands: onRedis8, lacks: []string{"server"}},
	"valkey8": {commands: onValkey8},
	"valkey9": {commands: onValkey9},
	"miniredis": {
		commands: onRedis7,
		lacks:    []string{"server", "bit", "struct", "cmsgpack", "redis.breakpoint", "redis.acl_check_cmd"},
	},
	"dragonfly": {commands: onRedis7, lacks: []string{"server", "redis.setresp", "redis.breakpoint"}, keys: true},
}

// TargetNames lists what -target takes.
func TargetNames() []string {
	names := make([]string, 0, len(platforms))
	for name := range platforms {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// CheckTargets reports a name that is no target.
func CheckTargets(targets []string) error {
	for _, name := range targets {
		if _, ok := platforms[name]; !ok {
			return fmt.Errorf("luagen: %q is not a target: targets are %s", name, strings.Join(TargetNames(), " "))
		}
	}
	return nil
}

// without lists the targets of the run that lack a global or a function of redis.
func (b *body) without(name string) []string {
	return b.targetsWhere(func(p platform) bool { return slices.Contains(p.lacks, name) })
}

func (b *body) targetsWhere(holds func(platform) bool) []string {
	var names []string
	for _, name := range b.targets {
		if holds(platforms[name]) {
			names = append(names, name)
		}
	}
	return names
}

// checkTargets reports a command that a target does not have, or refuses in scripts.
func (b *body) checkTargets(c redisCall, name string, cmd command) {
	if missing := b.targetsWhere(func(p platform) bool { return cmd.on&p.commands == 0 }); len(missing) > 0 {
		b.at(c.args[0], "P002", spoken(name)+" is not a command of "+strings.Join(missing, ", "),
			cmd.availability(name))
	}
	refused := b.targetsWhere(func(p platform) bool { return cmd.noscript&p.commands != 0 && cmd.noscript != cmd.on })
	if len(refused) > 0 {
		b.at(c.args[0], "P002", spoken(name)+" is refused in scripts by "+strings.Join(refused, ", "),
			"leave it to the client")
	}
}

// availability says where a command is.
func (c command) availability(name string) string {
	var names []string
	for _, s := range []struct {
		bit  serverSet
		name string
	}{{onRedis7, "redis7"}, {onRedis8, "redis8"}, {onValkey8, "valkey8"}, {onValkey9, "valkey9"}} {
		if c.on&s.bit != 0 {
			names = append(names, s.name)
		}
	}
	text := spoken(name) + " is on " + strings.Join(names, ", ")
	if c.since != "" {
		text += ", since version " + c.since
	}
	return text
}
