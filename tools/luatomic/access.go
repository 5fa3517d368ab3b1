package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// aclResult is the object on stdout.
type aclResult struct {
	Rules   []string `json:"rules"`
	Command string   `json:"command"`
}

// aclFlags are what acl is asked for.
type aclFlags struct {
	luatomic.AccessOptions
	user, passwordFile, dialect string
}

func aclCommand() *command {
	o := aclFlags{user: "app"}
	return &command{
		name: "acl", args: "[flags]",
		about: "Print the minimal rights that a program needs.",
		detail: `No server is asked. The rules are those of ACL SETUSER: patterns of keys and channels
under --prefix, then commands, also those that only scripts call. The command begins with reset: what
the user could do before is taken away, old passwords too. With --password-file it has the SHA-256 of
the password and not the password; without it, replace PASSWORD. A database other than 0 needs +select
too, and a client with a name +client|setname.
luatomic doctor, run as that user, checks that no right is missing and whether an unauthenticated
connection may do more: RESET makes any connection one of the user default. See docs/security.md.`,
		output:  `{"rules","command"}; command: the whole of ACL SETUSER`,
		example: `luatomic acl --prefix app: --role producer --password-file pw | jq -r .command | redis-cli`,
		flags:   o.define,
		check: func(s *session) error {
			if o.user == "" || strings.ContainsAny(o.user, " \t\r\n\x00\"'") {
				return usagef("--user %q is no user name; write a name without spaces and quotes", o.user)
			}
			if err := checkRoles(o.Roles, o.dialect); err != nil {
				return err
			}
			if err := o.foreign(); err != nil {
				return err
			}
			if o.dialect == redisInAction || slices.Contains(sidekiqs, o.dialect) {
				if err := s.checkNamespace(); err != nil {
					return err
				}
			}
			return s.noArgs()
		},
		run: func(s *session) error {
			o.Prefix = s.prefix
			out := aclResult{Rules: luatomic.AccessRules(&o.AccessOptions)}
			if o.dialect != "" {
				out.Rules = dialectRules(o.dialect, &o.AccessOptions)
			}
			password, err := o.password()
			if err != nil {
				return err
			}
			out.Command = "ACL SETUSER " + o.user + " reset on " + password
			for _, r := range out.Rules {
				out.Command += " " + quoteRule(r)
			}
			return s.emit(out)
		},
	}
}

func (o *aclFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&o.user, "user", o.user, "`NAME` of the user")
	fs.StringVar(&o.passwordFile, "password-file", "", "`FILE` whose first line is the password; - is stdin")
	rolesFlag(fs, &o.Roles)
	dialectFlag(fs, &o.dialect, append(slices.Clone(sidekiqs), redisInAction, plain)...)
	fs.BoolVar(&o.Cluster, "cluster", false, "for the nodes of a cluster")
	fs.BoolVar(&o.Preloaded, "preloaded", false,
		"without SCRIPT LOAD; another user runs luatomic load after each start of a server")
	fs.BoolVar(&o.Audit, "audit", false, "also for luatomic locks ls and Queue.Audit; SCAN shows the names of all keys")
	fs.BoolVar(&o.Replicas, "replicas", false, "also for luatomic lock --replicas")
}

func rolesFlag(fs *flag.FlagSet, roles *[]luatomic.Role) {
	fs.Func("role",
		"what the program does: `ROLE` of producer, consumer, lock, limit, caller, node, page; several with commas",
		func(v string) error {
			for _, name := range strings.Split(v, ",") {
				*roles = append(*roles, luatomic.Role(name))
			}
			return nil
		})
}

// checkRoles refuses an unknown role, and the page together with another one: it reads the keys that the others write.
func checkRoles(roles []luatomic.Role, dialect string) error {
	for _, r := range roles {
		if !slices.Contains(luatomic.Roles(), r) {
			return usagef("there is no role %q; the roles are %s", string(r), roleNames())
		}
	}
	switch {
	case len(roles) > 1 && slices.Contains(roles, luatomic.RolePage):
		return usagef("the role %q reads only; leave the other roles to another user", string(luatomic.RolePage))
	case dialect != "" && len(roles) > 0:
		return usagef("--role is for the native keys; leave it out with --dialect")
	}
	return nil
}

func roleNames() string {
	var names []string
	for _, r := range luatomic.Roles() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// password is the part of ACL SETUSER that sets it, without the password itself.
func (o *aclFlags) password() (string, error) {
	if o.passwordFile == "" {
		return ">PASSWORD", nil
	}
	var text []byte
	var err error
	if o.passwordFile == "-" {
		text, err = io.ReadAll(io.LimitReader(os.Stdin, 64<<10))
	} else {
		text, err = os.ReadFile(o.passwordFile)
	}
	if err != nil {
		return "", fmt.Errorf("the password cannot be read: %w; name a file with it in the first line", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("the first line of %q is empty; write the password there", o.passwordFile)
	}
	return fmt.Sprintf("#%x", sha256.Sum256([]byte(line))), nil
}

// globbed is a prefix as a pattern.
func globbed(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, " ", "?").Replace(prefix)
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
		about: "Load all scripts, for programs whose user may not load them.",
		detail: `A program loads its scripts by itself, unless its user may run neither SCRIPT LOAD nor
EVAL (luatomic acl --preloaded). For such programs, run this as a user that may run SCRIPT LOAD,
after each start, restart or failover of a server. It loads on all masters and replicas of a
cluster. With --dialect it loads the scripts of that package of compat.`,
		output:  `{"loaded"}; how many texts: a script with a guard counts twice`,
		example: `luatomic load --redis redis://deploy:PASSWORD@db.example:6379`,
		flags: func(fs *flag.FlagSet) {
			dialectFlag(fs, &dialect, append(slices.Clone(sidekiqs), redisInAction, actionHero, plain)...)
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
	case dialect == plain:
		return plainlock.Scripts()
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
