package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// aclResult is the object on stdout.
type aclResult struct {
	Rules   []string `json:"rules"`
	Command string   `json:"command"`
}

func aclCommand() *command {
	var o luatomic.AccessOptions
	user := "app"
	return &command{
		name: "acl", args: "[flags]",
		about: "Print the least rights that a program needs.",
		detail: `No server is asked. The rules are those of ACL SETUSER: patterns of keys and channels
under --prefix, then commands, also those that only scripts call. Replace PASSWORD by a password. A
database other than 0 needs +select too. luatomic doctor, run as that user, checks that no right is
missing.`,
		output:  `{"rules","command"}; command: the whole of ACL SETUSER`,
		example: `luatomic acl --prefix app: | jq -r .command | sed "s/PASSWORD/$PASSWORD/" | redis-cli`,
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&user, "user", user, "`NAME` of the user")
			fs.BoolVar(&o.Cluster, "cluster", false, "for the nodes of a cluster")
			fs.BoolVar(&o.Preloaded, "preloaded", false,
				"without SCRIPT LOAD; another user runs luatomic load after each start of a server")
			fs.BoolVar(&o.Audit, "audit", false, "also for luatomic locks ls and Queue.Audit; SCAN shows the names of all keys")
			fs.BoolVar(&o.Replicas, "replicas", false, "also for luatomic lock --replicas")
		},
		check: func(s *session) error {
			if user == "" || strings.ContainsAny(user, " \t\r\n\x00\"'") {
				return usagef("--user %q is no user name; write a name without spaces and quotes", user)
			}
			return s.noArgs()
		},
		run: func(s *session) error {
			o.Prefix = s.prefix
			out := aclResult{Rules: luatomic.AccessRules(&o), Command: "ACL SETUSER " + user + " on >PASSWORD"}
			for _, r := range out.Rules {
				out.Command += " " + quoteRule(r)
			}
			return s.emit(out)
		},
	}
}

// quoteRule writes a rule as redis-cli reads it.
func quoteRule(r string) string {
	if strings.ContainsAny(r, "\"'") {
		return strconv.Quote(r)
	}
	return r
}

type loadResult struct {
	Loaded int `json:"loaded"`
}

func loadCommand() *command {
	dialect := ""
	return &command{
		name: "load", args: "[flags]",
		about: "Load all scripts, for programs whose user may not.",
		detail: `A program loads its scripts by itself, unless its user may run neither SCRIPT LOAD nor
EVAL (luatomic acl --preloaded). For such programs, run this as a user that may run SCRIPT LOAD,
after each start, restart or failover of a server. It loads on all masters and replicas of a
cluster. With --dialect it loads the scripts of that package of compat.`,
		output:  `{"loaded"}; how many texts: a script with a guard counts twice`,
		example: `luatomic load --redis redis://deploy:PASSWORD@db.example:6379`,
		flags: func(fs *flag.FlagSet) {
			dialectFlag(fs, &dialect, append(slices.Clone(sidekiqs), redisInAction, actionHero)...)
		},
		check: (*session).noArgs,
		run: func(s *session) error {
			client, err := s.connect(s.signals.stop)
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			scripts := scriptsOf(dialect)
			switch err := lua.Preload(s.signals.stop, client, scripts...); {
			case s.signals.stop.Err() != nil:
				return errInterrupted
			case err != nil && strings.Contains(err.Error(), "NOPERM"):
				first, _, _ := strings.Cut(err.Error(), "\n")
				return fmt.Errorf("%s; name a user that may run SCRIPT LOAD: redis://USER:PASSWORD@HOST:PORT", first)
			case err != nil:
				return err
			}
			return s.emit(loadResult{countScripts(scripts)})
		},
	}
}

func scriptsOf(dialect string) []*lua.Script {
	switch {
	case dialect == redisInAction:
		return redisinaction.Scripts()
	case dialect == actionHero:
		return actionhero.Scripts()
	case slices.Contains(sidekiqs, dialect):
		return sidekiq.Scripts()
	}
	return luatomic.Scripts()
}

// countScripts counts the guarded variants too.
func countScripts(scripts []*lua.Script) int {
	n := 0
	for _, s := range scripts {
		n++
		if s.Guarded.Source != nil {
			n++
		}
	}
	return n
}
