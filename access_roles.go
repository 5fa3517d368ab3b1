package luatomic

import (
	"slices"
	"strings"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	queuescript "github.com/luatomic/luatomic/gen/queue"
	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/operate"
	"github.com/luatomic/luatomic/lua"
)

// Role is a kind of program, for AccessOptions.Roles. A role has its commands and its keys. Roles with the same kind of
// keys share them: a consumer can delete a job, and a caller can write what a node writes. If that matters, sign calls
// with BusOptions.Keys, and give each team a prefix of its own.
type Role string

// The roles.
const (
	// RoleProducer pushes jobs, and counts them.
	RoleProducer Role = "producer"
	// RoleConsumer takes, settles and promotes jobs, and trims the dead ones.
	RoleConsumer Role = "consumer"
	// RoleLock uses locks, semaphores, read-write locks and elections, and no queue and no bus.
	RoleLock Role = "lock"
	// RoleLimit uses rate limits, and resets them.
	RoleLimit Role = "limit"
	// RoleCaller makes calls, casts, and lists nodes.
	RoleCaller Role = "caller"
	// RoleNode serves calls, and makes them.
	RoleNode Role = "node"
	// RolePage reads queues, workers, locks and nodes, and cannot write a key. It sees the names of all keys on the
	// server, INFO, and the contents of the keys under the prefix. It also reads the size of the key "queues", to tell
	// whether Sidekiq uses the server.
	RolePage Role = "page"
)

// Roles returns all roles.
func Roles() []Role {
	return []Role{RoleProducer, RoleConsumer, RoleLock, RoleLimit, RoleCaller, RoleNode, RolePage}
}

// rights are what some roles need.
type rights struct {
	foreign                  []string // rules for keys of other systems
	pattern                  string   // before a pattern of keys: "~", or "%R~" where nothing is written
	keys, channels, commands []string
}

var (
	queueKinds = []string{"", "queues:"}
	lockKinds  = []string{"lock:", "lockq:", "rw:", "rwq:", "sem:", "semq:"}
	limitKinds = []string{"limit:", "limitr:"}
	callKinds  = []string{"rpc:"}
)

// rights returns the union of the roles' rights. An unknown role adds nothing.
func (o *AccessOptions) rights() rights {
	r := rights{pattern: "~"}
	roles := o.Roles
	if len(roles) == 0 {
		r.keys = slices.Concat(queueKinds, lockKinds, limitKinds, callKinds)
		r.channels = slices.Concat([]string{"{"}, o.lockChannels(), []string{"rpc:{"})
		r.commands = append(operate.Commands(Scripts()), "subscribe", "unlink", "unsubscribe")
	}
	for _, role := range roles {
		switch role {
		case RoleProducer:
			r.add(queueKinds, []string{"{"}, queueScripts(false), "zadd")
		case RoleConsumer:
			r.add(queueKinds, []string{"{"}, queueScripts(true), "pubsub", "zadd", "subscribe",
				"unsubscribe")
		case RoleLock:
			r.add(lockKinds, o.lockChannels(), scriptsOf("lock_"), "publish", "subscribe", "unsubscribe")
		case RoleLimit:
			r.add(limitKinds, nil, scriptsOf("limit_"))
		case RoleCaller:
			r.add(callKinds, []string{"rpc:{"}, callerScripts(), "get", "set", "hget", "unlink", "subscribe",
				"unsubscribe")
		case RoleNode:
			r.add(callKinds, []string{"rpc:{"}, scriptsOf("rpc_"), "get", "set", "hget", "unlink", "subscribe",
				"unsubscribe")
		case RolePage:
			r.pattern = "%R~"
			r.add(slices.Concat(queueKinds, lockKinds, callKinds), nil, pageScripts(), "time", "scan", "hscan", "zscan",
				"zrange", "zscore", "hmget", "info", "scard")
			if o.Cluster {
				r.commands = append(r.commands, "cluster|info")
			}
			// Whether there is a Sidekiq: SCARD counts its queues.
			r.foreign = []string{"%R~queues"}
		}
	}
	slices.Sort(r.keys)
	slices.Sort(r.channels)
	r.keys, r.channels = slices.Compact(r.keys), slices.Compact(r.channels)
	return r
}

func (r *rights) add(keys, channels []string, scripts []*lua.Script, commands ...string) {
	r.keys, r.channels = append(r.keys, keys...), append(r.channels, channels...)
	r.commands = append(append(r.commands, operate.Commands(scripts)...), commands...)
}

// lockChannels returns patterns of the waiters' channels.
func (o *AccessOptions) lockChannels() []string {
	if o.Cluster {
		return []string{"lock:c:", "lock:{", "rw:{", "sem:{"}
	}
	return []string{"lock:c:", "lock:{"}
}

// scriptsOf returns the scripts whose names begin with one of these texts.
func scriptsOf(begin ...string) (out []*lua.Script) {
	for _, s := range Scripts() {
		if slices.ContainsFunc(begin, func(b string) bool { return strings.HasPrefix(s.Name, b) }) {
			out = append(out, s)
		}
	}
	return out
}

func queueScripts(consume bool) []*lua.Script {
	if !consume {
		return []*lua.Script{
			&queuescript.PushScript, &queuescript.PushManyScript, &queuescript.PushOneScript,
			&queuescript.PushBareScript,
			&queuescript.StatsScript,
		}
	}
	return []*lua.Script{
		&queuescript.PromoteScript, &queuescript.AckScript, &queuescript.ExtendScript, &queuescript.NackScript,
		&queuescript.ReclaimScript, &queuescript.ReportScript, &queuescript.StatsScript, &queuescript.TakeScript,
		&queuescript.TrimScript,
	}
}

func callerScripts() []*lua.Script {
	return []*lua.Script{
		&rpcscript.CallScript, &rpcscript.CancelScript, &rpcscript.CastScript, &rpcscript.CollectScript,
		&rpcscript.DecideScript,
		&rpcscript.FindScript, &rpcscript.JoinScript, &rpcscript.LeaveScript, &rpcscript.NodesScript,
		&rpcscript.ReadScript,
	}
}

func pageScripts() []*lua.Script {
	return []*lua.Script{
		&lockscript.InfoScript, &queuescript.FindScript, &queuescript.PeekScript, &queuescript.StatsScript,
		&rpcscript.NodesScript,
		&lockscript.SemInfoScript,
	}
}
