package luatomic

import (
	"slices"
	"strings"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	lockscript "github.com/luatomic/luatomic/gen/lock"
	queuescript "github.com/luatomic/luatomic/gen/queue"
	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
)

// Scripts returns all scripts of this package, for lua.Preload. A program whose user may run neither EVAL nor SCRIPT
// LOAD needs them loaded.
func Scripts() []*lua.Script {
	return []*lua.Script{
		&queuescript.PromoteScript,
		&limitscript.AllowScript, &limitscript.AllowAllScript, &limitscript.LevelScript, &limitscript.PeekScript,
		&limitscript.ReserveScript, &limitscript.SettleScript,
		&lockscript.AcquireScript, &lockscript.AcquireAllScript, &lockscript.ExtendScript, &lockscript.FenceScript,
		&lockscript.ForceScript, &lockscript.InfoScript, &lockscript.LeaveScript, &lockscript.NoteScript,
		&lockscript.ReleaseScript,
		&lockscript.TryScript,
		&lockscript.SemAcquireScript, &lockscript.SemExtendScript, &lockscript.SemInfoScript,
		&lockscript.SemReleaseScript, &lockscript.SemResizeScript,
		&queuescript.AckScript, &queuescript.BuryScript, &queuescript.CancelScript, &queuescript.ControlScript,
		&queuescript.ExtendScript,
		&queuescript.FindScript, &queuescript.MendScript, &queuescript.NackScript, &queuescript.PeekScript,
		&queuescript.PushScript,
		&queuescript.PushBareScript, &queuescript.PushManyScript, &queuescript.PushOneScript,
		&queuescript.ReclaimScript,
		&queuescript.ReportScript, &queuescript.RequeueScript, &queuescript.RescheduleScript,
		&queuescript.StatsScript, &queuescript.TakeScript, &queuescript.TrimScript,
		&rpcscript.BindScript, &rpcscript.CallScript, &rpcscript.CancelScript, &rpcscript.CastScript,
		&rpcscript.ChunkScript,
		&rpcscript.CollectScript, &rpcscript.DecideScript, &rpcscript.FindScript, &rpcscript.JoinScript,
		&rpcscript.LeaveScript,
		&rpcscript.NodesScript, &rpcscript.ReadScript, &rpcscript.ReplyScript,
	}
}

// AccessOptions select the operations that the Redis user may run. The zero value allows all operations on a single
// server but those of the fields Audit and Replicas.
type AccessOptions struct {
	// Prefix is the Prefix of QueueOptions, LockerOptions, BusOptions and of package limit.
	Prefix string
	// Cluster adds the commands of a ClusterClient, also one of NewFailoverClusterClient, and of a Ring.
	Cluster bool
	// Roles narrow the rights to what these kinds of programs do; nil means all but RolePage.
	Roles []Role
	// Preloaded leaves out SCRIPT LOAD: another user runs lua.Preload with Scripts after each start and failover. The
	// user can then run only scripts that the server has, on its own keys. Without Preloaded the user can run any Lua
	// code in the server's thread, and can block the server.
	Preloaded bool
	// Audit adds the commands of a Locker's lists and of Queue.Audit. One of them is SCAN, which shows the names of all
	// keys on the server.
	Audit bool
	// Replicas adds WAIT, for LockerOptions.Replicas.
	Replicas bool
}

// AccessRules returns the minimal rules for a user of this package: patterns of keys and channels, then commands. They
// are arguments of ACL SETUSER, after the user's name and password. The rules include the commands inside the scripts:
// the server checks each of them against the user's permissions, and a script without a permission fails half-way.
// go-redis sends more for some of its options, on each new connection: a client with a DB also needs +select, one with
// a ClientName +client|setname, and one of a cluster that reads from replicas +readonly.
func AccessRules(opts *AccessOptions) []string {
	var o AccessOptions
	if opts != nil {
		o = *opts
	}
	r := o.rights()
	var rules []string
	for _, kind := range r.keys {
		rules = append(rules, r.pattern+globPrefix(o.Prefix)+kind+"{*")
	}
	rules = append(rules, r.foreign...)
	for _, kind := range r.channels {
		rules = append(rules, "&"+globPrefix(o.Prefix)+kind+"*")
	}
	commands := append(r.commands, "evalsha", "evalsha_ro", "ping")
	if !o.Preloaded {
		commands = append(commands, "script|load")
	}
	if o.Cluster {
		// ASKING is for a migrating slot. Without COMMAND go-redis works, but tries it again before each call.
		commands = append(commands, "asking", "cluster|slots", "command", "pubsub|shardnumsub", "spublish",
			"ssubscribe")
	}
	if o.Audit {
		commands = append(commands, "hscan", "scan", "zscan")
	}
	if o.Replicas {
		commands = append(commands, "wait")
	}
	slices.Sort(commands)
	for _, c := range slices.Compact(commands) {
		if c == "pubsub" {
			c = "pubsub|numsub"
		}
		rules = append(rules, "+"+c)
	}
	return rules
}

// globPrefix returns a prefix as a pattern in a rule. A rule cannot contain a space and a pattern cannot escape one, so
// a "?" stands for it.
func globPrefix(prefix string) string { return strings.ReplaceAll(servers.Glob(prefix), " ", "?") }
