package luatomic

import (
	"regexp"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/nodes"
	"github.com/luatomic/luatomic/lua"
)

// Scripts are all scripts of this package, for lua.Preload: a program whose user
// may run neither EVAL nor SCRIPT LOAD finds them on the server.
func Scripts() []*lua.Script {
	return []*lua.Script{
		&gen.DelayedPromoteScript,
		&gen.LockAcquireScript, &gen.LockAcquireAllScript, &gen.LockExtendScript, &gen.LockFenceScript,
		&gen.LockForceScript, &gen.LockInfoScript, &gen.LockNoteScript, &gen.LockReleaseScript,
		&gen.LockTryScript,
		&gen.SemAcquireScript, &gen.SemExtendScript, &gen.SemInfoScript,
		&gen.SemReleaseScript, &gen.SemResizeScript,
		&gen.QueueAckScript, &gen.QueueCancelScript, &gen.QueueControlScript, &gen.QueueExtendScript,
		&gen.QueueMendScript, &gen.QueueNackScript, &gen.QueuePeekScript, &gen.QueuePushScript,
		&gen.QueuePushManyScript, &gen.QueueReclaimScript, &gen.QueueRequeueScript, &gen.QueueRescheduleScript,
		&gen.QueueStatsScript, &gen.QueueTakeScript, &gen.QueueTrimScript,
		&gen.RPCAttachScript, &gen.RPCBindScript, &gen.RPCCallScript, &gen.RPCCancelScript, &gen.RPCCastScript,
		&gen.RPCChunkScript, &gen.RPCCollectScript, &gen.RPCDirectScript, &gen.RPCGatherScript,
		&gen.RPCJoinScript, &gen.RPCLeaveScript, &gen.RPCNodesScript, &gen.RPCPartScript, &gen.RPCPartsScript,
		&gen.RPCReadScript, &gen.RPCReplyScript, &gen.RPCRescueScript, &gen.RPCUnbindScript,
	}
}

// AccessOptions say what a user of the server must be allowed. The zero value is
// all operations on a single server, but for those named here.
type AccessOptions struct {
	// Prefix is that of QueueOptions, LockerOptions and BusOptions.
	Prefix string
	// Cluster adds what a client of a cluster or a Ring sends.
	Cluster bool
	// Preloaded leaves out SCRIPT LOAD: another user runs lua.Preload with Scripts
	// after each start and failover. The user can then run these scripts and no
	// others.
	Preloaded bool
	// Audit adds what the lists of a Locker and Queue.Audit send. SCAN, which is among that,
	// shows the names of all keys on the server.
	Audit bool
	// Replicas adds WAIT, for LockerOptions.Replicas.
	Replicas bool
}

// AccessRules are the least rules for a user of this package, as ACL SETUSER takes
// them after the user's name and password: patterns of keys and channels, then
// commands. The commands inside scripts are read from the scripts: the server
// checks each against the user's rights, and one that is missing fails half-way.
// A client that selects another database needs +select besides.
func AccessRules(opts *AccessOptions) []string {
	var o AccessOptions
	if opts != nil {
		o = *opts
	}
	// A rule cannot hold a space, and no pattern can escape one.
	prefix := strings.ReplaceAll(nodes.Glob(o.Prefix), " ", "?")
	var rules []string
	for _, kind := range []string{"", "lock:", "lockq:", "rpc:", "rw:", "rwq:", "sem:", "semq:"} {
		rules = append(rules, "~"+prefix+kind+"{*")
	}
	channels := []string{"{", "lock:c:", "lock:{", "rpc:{"}
	if o.Cluster {
		channels = append(channels, "rw:{", "sem:{")
	}
	for _, kind := range channels {
		rules = append(rules, "&"+prefix+kind+"*")
	}
	commands := append(scriptCommands(), "evalsha", "evalsha_ro", "ping", "subscribe", "unlink", "unsubscribe")
	if !o.Preloaded {
		commands = append(commands, "script|load")
	}
	if o.Cluster {
		// ASKING while a slot migrates. Without COMMAND go-redis works, and asks again
		// before each call.
		commands = append(commands, "asking", "cluster|slots", "command", "pubsub|shardnumsub", "spublish", "ssubscribe")
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

// scriptCommands are the commands that the scripts call. In a script a text in
// capitals that is the first argument of a call is a command, also where a local
// function hands it on to redis.call.
func scriptCommands() []string {
	call := regexp.MustCompile(`\w\('([A-Z]+)'`)
	var all []string
	for _, s := range Scripts() {
		for _, m := range call.FindAllStringSubmatch(*s.Source+s.Guarded.String(), -1) {
			if m[1] != "SPUBLISH" { // in a cluster only
				all = append(all, strings.ToLower(m[1]))
			}
		}
	}
	return all
}
