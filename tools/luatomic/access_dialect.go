package main

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/internal/operate"
)

// foreign refuses the flags whose rights a dialect has not.
func (o *aclFlags) foreign() error {
	if o.dialect == "" {
		return nil
	}
	return foreignFlags(o.dialect, map[string]bool{
		"cluster": o.Cluster, "replicas": o.Replicas, "audit": o.Audit && !slices.Contains(sidekiqs, o.dialect),
	})
}

// dialectRules are the rights on the keys of another system: all keys of its namespace, whose names are that system's,
// then the commands of its scripts, read from them, and those that its package and this program send besides.
func dialectRules(dialect string, o *luatomic.AccessOptions) []string {
	prefix := globbed(o.Prefix)
	rules := []string{"~" + prefix + "*"}
	// info is for doctor. The last line is a worker's.
	words := "hget info lrange lrem scard smembers time zcard zcount zrange zscan " +
		"bitfield blmove exec expire hincrby hkeys hmget hset multi sadd unlink"
	switch dialect {
	case redisInAction:
		words = "blmove lrem"
	case plain:
		words = "pubsub|numsub subscribe unsubscribe"
		if prefix != "" {
			rules = append(rules, "~{"+prefix+"*}:fence") // of a name without a hash tag; a prefix has none
		}
		rules = append(rules, "&luatomic:released:"+prefix+"*")
	}
	if !o.Preloaded {
		words += " script|load"
	}
	if o.Audit {
		words += " scan"
	}
	commands := append(operate.Commands(scriptsOf(dialect)), strings.Fields("evalsha evalsha_ro ping "+words)...)
	slices.Sort(commands)
	for _, c := range slices.Compact(commands) {
		rules = append(rules, "+"+c)
	}
	return rules
}
