package luatomic

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
)

// Verdict is the result of a check.
type Verdict uint8

// The verdicts.
const (
	// CheckUnknown: the server does not report the setting, or not to this user.
	CheckUnknown Verdict = iota
	CheckPassed
	CheckFailed
	// CheckWarned: no promise is broken yet, and one soon may be.
	CheckWarned
)

func (v Verdict) String() string {
	switch v {
	case CheckPassed:
		return "passed"
	case CheckFailed:
		return "failed"
	case CheckWarned:
		return "warned"
	}
	return "unknown"
}

// ServerCheck is one check of one server.
type ServerCheck struct {
	// Check is one of "version", "eviction", "memory", "clients", "persistence", "replication", "cluster", "clock" and
	// "timeouts". The last one is about a setting of the client.
	Check string
	// Node is the server's address.
	Node    string
	Verdict Verdict
	// Detail is the finding, Cure the remedy; a check that passed has no Cure.
	Detail, Cure string
}

// Warns reports whether the check failed or warned: the server breaks a promise of this package, or soon may.
func (c ServerCheck) Warns() bool { return c.Verdict == CheckFailed || c.Verdict == CheckWarned }

// String names the check, the server and the finding, with the cure if there is one.
func (c ServerCheck) String() string {
	text := c.Check + " of " + c.Node + ": " + c.Detail
	if c.Cure != "" {
		text += "; " + c.Cure
	}
	return text
}

// CheckServer reads the settings of the server, or of every master of a cluster, and returns all checks of promises of
// this package: an old version, eviction of keys, a full memory, too many clients, no persistence, a replica in the
// place of a master, a cluster with unserved slots, a clock that is far off, a client whose calls outlast their
// contexts. [ServerCheck.Warns] tells those that found something from those that passed, and from those without an
// answer, as on services that refuse INFO. CheckServer only reads. The error reports each server that is away, busy or
// loading, or does not let the client in; the others are checked. Cost: 3 round trips for each server, PING, INFO and
// TIME; one more without an append-only file, and one more for a node of a cluster.
func CheckServer(ctx context.Context, client lua.Client) ([]ServerCheck, error) {
	masters, err := servers.Masters(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("luatomic: check the server: %w", err)
	}
	clustered := servers.Clustered(client)
	found, errs := make([]inspection, len(masters)), make([]error, len(masters))
	send.Abreast(len(masters), func(i int) {
		found[i] = inspection{node: masters[i].Options().Addr, clustered: clustered}
		errs[i] = found[i].inspect(ctx, masters[i])
	})
	var all []ServerCheck
	for _, n := range found {
		all = append(all, n.checks...)
	}
	return all, errors.Join(errs...)
}

// inspection has the settings that one server reports.
type inspection struct {
	node      string
	clustered bool // the client is a cluster client
	refused   string
	info      map[string]string
	snapshots string // setting "save"
	state     map[string]string
	ahead     time.Duration
	timed     bool
	checks    []ServerCheck
}

// inspect makes all checks of the server, unless it does not serve the client.
func (n *inspection) inspect(ctx context.Context, node servers.Node) error {
	if err := n.read(ctx, node); err != nil {
		return fmt.Errorf("luatomic: check the server at %s: %w", n.node, err)
	}
	n.version()
	n.eviction()
	n.memory()
	n.clients()
	n.persistence()
	n.replication()
	n.cluster()
	n.clock()
	n.timeouts(node.Options())
	return nil
}

// read queries the server. It asks for no more than the checks need, because ACL LOG records each command that is
// refused. Refused answers stay empty. An error means that the server does not serve the client: its answer to PING
// tells that from the refusal of one command.
func (n *inspection) read(ctx context.Context, node servers.Node) error {
	if err := servers.Answers(ctx, node); err != nil {
		return err
	}
	info := node.Info(ctx)
	if err := info.Err(); !answered(err) {
		return err
	} else if err != nil {
		n.refused = "INFO: " + err.Error()
	}
	n.info, n.snapshots = fields(info.Val()), "unknown"
	if n.info["aof_enabled"] == "0" || n.info["rdb_last_bgsave_status"] == "err" {
		save := node.ConfigGet(ctx, "save")
		if err := save.Err(); err == nil {
			n.snapshots = save.Val()["save"]
		} else if !answered(err) {
			return err
		}
	}
	if n.info["cluster_enabled"] == "1" {
		state := node.ClusterInfo(ctx)
		if !answered(state.Err()) {
			return state.Err()
		}
		n.state = fields(state.Val())
	}
	return n.clockOf(ctx, node)
}

// answered reports whether there is a reply, even a refusal.
func answered(err error) bool {
	var reply redis.Error
	return err == nil || errors.As(err, &reply)
}

// clockOf compares the server's clock with that of this machine.
func (n *inspection) clockOf(ctx context.Context, node servers.Node) error {
	sent := time.Now()
	now, err := node.Time(ctx).Result()
	if err != nil && answered(err) {
		return nil
	}
	// The server read its clock between the two readings of ours.
	n.timed, n.ahead = true, now.Sub(sent.Add(time.Since(sent)/2))
	return err
}

// fields parses the lines of INFO.
func fields(text string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all
}

func (n *inspection) add(check string, v Verdict, detail, cure string) {
	if v == CheckPassed {
		cure = ""
	}
	n.checks = append(n.checks, ServerCheck{Check: check, Node: n.node, Verdict: v, Detail: detail, Cure: cure})
}

// unknown adds a check that the server does not answer.
func (n *inspection) unknown(check, field, cure string) {
	why := "INFO has no " + field
	if n.refused != "" {
		why = n.refused
	}
	n.add(check, CheckUnknown, why, cure)
}

// oldestMajor is the first version with all commands that the scripts call.
const oldestMajor = 7

func (n *inspection) version() {
	const cure = "use Redis 7.0 or later, or Valkey"
	name, version := "Redis", n.info["redis_version"]
	if v := n.info["valkey_version"]; v != "" {
		name, version = "Valkey", v
	}
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	switch {
	case err != nil:
		n.unknown("version", "redis_version", cure)
	case major < oldestMajor:
		n.add("version", CheckFailed, name+" "+version+" lacks EVALSHA_RO and other commands that the scripts need",
			cure)
	default:
		n.add("version", CheckPassed, name+" "+version, "")
	}
}

// eviction fails for every policy but noeviction: allkeys policies delete jobs too, volatile ones all keys with a
// TTL, which all locks have.
func (n *inspection) eviction() {
	const cure = "CONFIG SET maxmemory-policy noeviction, or keep caches on another server"
	policy, limit := n.info["maxmemory_policy"], n.info["maxmemory"]
	switch {
	case policy == "":
		n.unknown("eviction", "maxmemory_policy",
			"make sure that maxmemory-policy is noeviction: all others delete locks when memory is short")
	case policy == "noeviction":
		n.add("eviction", CheckPassed, "maxmemory-policy is noeviction", "")
	default:
		what := "locks"
		if strings.HasPrefix(policy, "allkeys-") {
			what = "locks and jobs"
		}
		detail := fmt.Sprintf("maxmemory-policy %s deletes %s when memory is short", policy, what)
		if limit == "0" {
			detail += "; there is no maxmemory yet"
		}
		n.add("eviction", CheckFailed, detail, cure)
	}
}

// The parts of maxmemory, in percent, from which memory warns and fails.
const (
	warnAt = 80
	fullAt = 95
)

// memory fails if the server refuses what needs memory, or soon will, and warns before that. It compares maxmemory with
// what it uses without the buffers of replicas and of the append-only file.
func (n *inspection) memory() {
	limit, err := strconv.ParseInt(n.info["maxmemory"], 10, 64)
	used, unknown := strconv.ParseInt(n.info["used_memory"], 10, 64)
	buffers, _ := strconv.ParseInt(n.info["mem_not_counted_for_evict"], 10, 64)
	used -= buffers
	switch {
	case err != nil || unknown != nil:
		n.unknown("memory", "maxmemory and used_memory",
			"make sure that it has memory left: a full server refuses pushes, calls and acquires")
	case limit == 0:
		n.add("memory", CheckPassed, "there is no maxmemory", "")
	case used > limit:
		n.add("memory", CheckFailed, "the server is full, and refuses pushes, calls and acquires",
			"raise its maxmemory, or delete what is not needed")
	default:
		verdict, percent := CheckPassed, used*100/limit
		switch {
		case percent >= fullAt:
			verdict = CheckFailed
		case percent >= warnAt:
			verdict = CheckWarned
		}
		n.add("memory", verdict, fmt.Sprintf("%d %% of maxmemory is used", percent),
			"raise its maxmemory, or delete what is not needed, before it refuses pushes, calls and acquires")
	}
}

// clients fails if the server has no room for another connection. It counts its replicas and the links of a cluster
// towards maxclients, and reports them apart.
func (n *inspection) clients() {
	limit, err := strconv.Atoi(n.info["maxclients"])
	connected, unknown := strconv.Atoi(n.info["connected_clients"])
	for _, apart := range []string{"connected_slaves", "cluster_connections"} {
		more, _ := strconv.Atoi(n.info[apart])
		connected += more
	}
	switch detail := fmt.Sprintf("%d of at most %d connections", connected, limit); {
	case err != nil || unknown != nil:
		n.unknown("clients", "maxclients and connected_clients",
			"make sure that maxclients has room for all programs: a server without room refuses connections")
	case connected >= limit:
		n.add("clients", CheckFailed, detail+": the server refuses more",
			"end some of its clients, or raise maxclients")
	default:
		n.add("clients", CheckPassed, detail, "")
	}
}

func (n *inspection) persistence() {
	const cure = "CONFIG SET appendonly yes, and write it to the configuration"
	aof, status := n.info["aof_enabled"], n.info["aof_last_write_status"]
	switch {
	case aof == "":
		n.unknown("persistence", "aof_enabled", "make sure that appendonly is on: without it a restart loses jobs")
	case aof == "1" && status != "" && status != "ok":
		n.add("persistence", CheckFailed, "the last write to the append-only file failed",
			"see the server's log: is the disk full?")
	case n.snapshots != "" && n.info["rdb_last_bgsave_status"] == "err": // also beside an append-only file
		n.add("persistence", CheckFailed, "the last snapshot failed", "see the server's log: is the disk full?")
	case aof == "1":
		n.add("persistence", CheckPassed, "appendonly is on", "")
	case n.snapshots == "":
		n.add("persistence", CheckFailed, "appendonly and snapshots are off: a restart loses all jobs and locks", cure)
	case n.snapshots == "unknown":
		n.add("persistence", CheckUnknown,
			"appendonly is off, and the server does not report whether it makes snapshots", cure)
	default:
		n.add("persistence", CheckPassed, "snapshots only (save "+n.snapshots+
			"): a crash loses all writes after the last one; "+
			"appendonly keeps more", "")
	}
}

func (n *inspection) replication() {
	role, replicas := n.info["role"], n.info["connected_slaves"]
	switch {
	case role == "":
		n.unknown("replication", "role", "make sure that this is a master")
	case role != "master":
		n.add("replication", CheckFailed,
			"this is a replica of "+n.info["master_host"]+":"+n.info["master_port"]+" and refuses writes",
			"name the master")
	case n.info["min_slaves_good_slaves"] == "0": // only a server with min-replicas-to-write reports it
		n.add("replication", CheckFailed,
			"the server has min-replicas-to-write and no replica that keeps up, and refuses all writes",
			"start the replicas, or lower its min-replicas-to-write")
	case replicas == "0":
		n.add("replication", CheckPassed, "master without replicas", "")
	default:
		n.add("replication", CheckPassed, "master, replicas: "+replicas, "")
	}
}

func (n *inspection) cluster() {
	on, state, covered := n.info["cluster_enabled"], n.state["cluster_state"], n.state["cluster_slots_ok"]
	switch {
	case on == "":
		n.unknown("cluster", "cluster_enabled", "use a ClusterClient if it is a cluster")
	case on == "0":
		n.add("cluster", CheckPassed, "off", "")
	case !n.clustered:
		n.add("cluster", CheckFailed, "this is a node of a cluster, and the client is for a single server",
			"use a redis.ClusterClient")
	case state == "":
		n.add("cluster", CheckUnknown, "on; CLUSTER INFO is refused", "check CLUSTER INFO as another user")
	case state != "ok" || covered != "16384":
		n.add("cluster", CheckFailed, fmt.Sprintf("state %s, %s of 16384 slots are served", state, covered),
			"redis-cli --cluster fix, or start the nodes that are down")
	default:
		n.add("cluster", CheckPassed, "on, all slots are served", "")
	}
}

// farOff is how much the clocks may differ. Leases and due times follow the server's clock alone. Other clocks matter
// for a job with an absolute due time, and after a failover to another master.
const farOff = 2 * time.Second

func (n *inspection) clock() {
	detail := fmt.Sprintf("the server is %v ahead of this machine", n.ahead.Round(time.Millisecond))
	if n.ahead < 0 {
		detail = fmt.Sprintf("the server is %v behind this machine", -n.ahead.Round(time.Millisecond))
	}
	switch {
	case !n.timed:
		n.add("clock", CheckUnknown, "TIME is refused", "allow TIME: the scripts need it")
	case n.ahead.Abs() > farOff:
		n.add("clock", CheckFailed, detail,
			"run NTP on both: jobs that are due at a time are late or early by that much")
	default:
		n.add("clock", CheckPassed, detail, "")
	}
}

// timeouts checks the client's options. Without ContextTimeoutEnabled, a call that is sent by itself waits for a server
// that hangs until the client's own time-out.
func (n *inspection) timeouts(o *redis.Options) {
	if o.ContextTimeoutEnabled {
		n.add("timeouts", CheckPassed, "the client's calls end with their contexts", "")
		return
	}
	returns := fmt.Sprintf("returns %v after its server hangs, not when its context ends", o.ReadTimeout)
	if o.ReadTimeout <= 0 {
		returns = "does not return while its server hangs, also when its context ends"
	}
	n.add("timeouts", CheckFailed,
		"ContextTimeoutEnabled of the client is off: a call that shares no round trip, such "+
			"as one of more than 64 KiB, "+returns,
		"set ContextTimeoutEnabled in redis.Options or redis.ClusterOptions")
}
