package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/show"
)

const defaultURL = "redis://127.0.0.1:6379"

// reachWithin bounds the first PING, so that a wrong address shows soon. It changes in tests alone, which run many
// programs at once.
var reachWithin = 2 * time.Second

// silence drops the messages of go-redis.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// chosenURL is the server's URL that the user named, if any.
func (s *session) chosenURL() string {
	if s.url != "" {
		return s.url
	}
	return os.Getenv("REDIS_URL")
}

// connect returns a client of the user's server that has answered a PING.
func (s *session) connect(ctx context.Context) (redis.UniversalClient, error) {
	address := cmp.Or(s.chosenURL(), defaultURL)
	client, err := dial(ctx, address, s.tls)
	if err != nil {
		return nil, err
	}
	s.outage = &outage{s: s, server: redacted(address)}
	client.AddHook(s.outage)
	return client, nil
}

// redacted is the URL without its password.
func redacted(address string) string {
	u, err := checkURL(address)
	if err != nil {
		return "the server"
	}
	if q := u.Query(); q.Has("password") { // of the master behind a sentinel
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

func dial(ctx context.Context, address string, files tlsFlags) (redis.UniversalClient, error) {
	to, err := parseURL(address)
	if err == nil {
		err = to.secure(files)
	}
	if err != nil {
		return nil, err
	}
	cluster := to.cluster
	if single := to.single; single != nil {
		mode, err := probe(ctx, *single)
		switch {
		case err != nil:
			return nil, unreachable(address, err)
		case mode == "sentinel":
			return nil, unreachable(address, errSentinel)
		case mode != "cluster":
			return redis.NewClient(single), nil
		}
		// One node of a cluster knows the others.
		cluster = &redis.ClusterOptions{
			Addrs: []string{single.Addr}, Username: single.Username, Password: single.Password,
			TLSConfig: single.TLSConfig, DialTimeout: single.DialTimeout, ContextTimeoutEnabled: true,
		}
	}
	if to.failover != nil {
		return behindSentinel(ctx, address, to.failover)
	}
	client := redis.NewClusterClient(cluster)
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := servers.Answers(ctx, client); err != nil {
		_ = client.Close()
		return nil, unreachable(address, err)
	}
	return client, nil
}

// behindSentinel asks once, as probe does.
func behindSentinel(ctx context.Context, address string, o *redis.FailoverOptions) (redis.UniversalClient, error) {
	once := *o
	once.MaxRetries, once.DialerRetries = -1, 1
	client := redis.NewFailoverClient(&once)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := servers.Answers(ctx, client); err != nil {
		return nil, unreachable(address, err)
	}
	return redis.NewFailoverClient(o), nil
}

// target is what a URL names; the others are nil.
type target struct {
	single   *redis.Options
	cluster  *redis.ClusterOptions
	failover *redis.FailoverOptions
}

// parseURL gives the options of one server, with addr parameters of a cluster, with master_name of the sentinels that
// know the master.
func parseURL(address string) (to target, err error) {
	u, err := checkURL(address)
	if err != nil {
		return target{}, badURL(err)
	}
	var within *time.Duration
	switch tcp := u.Scheme != "unix"; {
	case tcp && u.Query().Has("master_name"):
		if to.failover, err = redis.ParseFailoverURL(address); err == nil {
			within, to.failover.ContextTimeoutEnabled = &to.failover.DialTimeout, true
		}
	case tcp && u.Query().Has("addr"):
		if to.cluster, err = redis.ParseClusterURL(address); err == nil {
			within, to.cluster.ContextTimeoutEnabled = &to.cluster.DialTimeout, true
		}
	default:
		if to.single, err = redis.ParseURL(address); err == nil {
			within, to.single.ContextTimeoutEnabled = &to.single.DialTimeout, true
		}
	}
	if err != nil {
		return target{}, badURL(err)
	}
	if *within == 0 {
		*within = reachWithin
	}
	return to, nil
}

// checkURL refuses what go-redis would read as the URL of another server, this machine's for one without a host, and
// parameters that it would leave out. No error repeats a part of the URL: it may be one of a password.
func checkURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	params, err := url.ParseQuery(u.RawQuery)
	tcp := u.Scheme == "redis" || u.Scheme == "rediss"
	switch {
	case err != nil:
		return nil, errors.New("its parameters cannot be read")
	case u.Opaque != "":
		return nil, errors.New("// is missing before the host")
	case tcp && u.Hostname() == "":
		return nil, errors.New("the host is missing")
	case slices.ContainsFunc(params["addr"], func(a string) bool { return strings.Contains(a, "@") }):
		return nil, errors.New("addr is HOST:PORT; the user and password stand before the first host alone")
	}
	return u, nil
}

// secure adds the files of the flags.
func (to target) secure(files tlsFlags) error {
	var config **tls.Config
	switch {
	case to.single != nil:
		config = &to.single.TLSConfig
	case to.cluster != nil:
		config = &to.cluster.TLSConfig
	default:
		config = &to.failover.TLSConfig
	}
	completed, err := files.config(*config)
	*config = completed
	return err
}

// badURL says where the URL comes from, and repeats no part of it.
func badURL(err error) error {
	return usagef("server URL, of --redis or REDIS_URL: %v", show.UnquotedURL(err))
}

// probe asks once, without the repeats of the client that is used later, and
// finds out what the server is: "cluster" for a node of one, "sentinel", or else.
func probe(ctx context.Context, o redis.Options) (mode string, err error) {
	o.MaxRetries, o.DialerRetries = -1, 1
	client := redis.NewClient(&o)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := servers.Answers(ctx, client); err != nil {
		return "", err
	}
	return modeOf(ctx, client), nil
}

// modeOf asks by HELLO, which no user is refused; a server without HELLO is asked by INFO.
func modeOf(ctx context.Context, client *redis.Client) (mode string) {
	hello, err := client.Do(ctx, "HELLO").Result()
	switch fields := hello.(type) {
	case map[any]any:
		mode, _ = fields["mode"].(string)
	case []any: // of RESP2
		if i := slices.Index(fields, any("mode")); i >= 0 && i+1 < len(fields) {
			mode, _ = fields[i+1].(string)
		}
	}
	if err != nil && strings.Contains(client.Info(ctx, "cluster").Val(), "cluster_enabled:1") {
		mode = "cluster"
	}
	return mode
}

// errSentinel is of a URL that names a sentinel as if it kept data.
var errSentinel = errors.New("it is a sentinel, and has no data")

// reachError has its cure in its text.
type reachError struct{ error }

func (e *reachError) Unwrap() error { return e.error }

// unreachable names the address and the cure.
func unreachable(address string, err error) error {
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w within %v", errNoAnswer, reachWithin)
	}
	cure := reachCure(err.Error())
	if cure == notRedis && strings.HasPrefix(strings.ToLower(address), "rediss:") {
		cure = notTLS
	}
	return &reachError{fmt.Errorf("cannot use %s: %w; %s", redacted(address), err, cure)}
}

// errNoAnswer is of a server that is silent.
var errNoAnswer = errors.New("no answer")

// reachCure is what to do about a server that cannot be used.
func reachCure(text string) string {
	switch {
	case strings.Contains(text, "x509: "):
		return "name the host as its certificate does, and the authority that signed it with --cacert"
	case strings.Contains(text, "remote error: tls: "):
		return "name a certificate that the server accepts with --cert and --cert-key"
	case strings.Contains(text, "does not look like a TLS handshake"):
		return "write redis:// in place of rediss://: the server has no TLS there"
	case isCut(text):
		return notRedis
	case strings.HasPrefix(text, "redis: all sentinels"): // also with what a server says that is none
		return "check the address of the sentinel and master_name in the URL, and the user and password of the " +
			"sentinel, or leave master_name out for a server without one"
	case lacking.MatchString(text):
		return fullServer
	}
	for begin, cure := range map[string]string{
		"no answer":                     notRedis,
		errSentinel.Error():             "add ?master_name=NAME to the URL, the name of its master",
		"redis: invalid":                notRedis, // its reply cannot be read
		"redis: can't parse":            notRedis,
		"NOAUTH":                        withPassword,
		"WRONGPASS":                     withPassword,
		"ERR DB index":                  "name a database that it has, as the path of the URL; 0 without one",
		"ERR SELECT is not":             "leave the path out of the URL: a cluster has one database",
		"ERR This instance has cluster": "leave addr out of the URL: it is a single server",
		"NOPERM":                        "give this user the rights that luatomic acl prints",
		"LOADING":                       "try again when it has read its data",
		"BUSY":                          busyServer,
		"CLUSTERDOWN":                   noSlots,
		"redis: cluster has no nodes":   noSlots,
		"ERR max number of clients":     tooManyClients,
		"MASTERDOWN":                    "name the master",
		"DENIED":                        "the message says how",
	} {
		if strings.HasPrefix(text, begin) {
			return cure
		}
	}
	return "start a server there, or name another with --redis URL or REDIS_URL"
}

// isCut reports whether the other side has ended a connection: it cannot read what it gets, or has too many clients.
func isCut(text string) bool {
	return strings.Contains(text, "broken pipe") || strings.Contains(text, "connection reset") ||
		strings.HasSuffix(text, "EOF")
}

const tooManyClients = "end some of its clients, or raise maxclients"

const (
	notRedis = "check that it is a Redis server and whether it wants TLS (rediss://), hangs or has reached its " +
		"maxclients, or name another with --redis URL or REDIS_URL"
	notTLS = "check that it is a Redis server that serves TLS there, write redis:// if it does not, " +
		"or name another with --redis URL or REDIS_URL"
	noSlots      = "try again when all slots are served; CLUSTER INFO shows them"
	withPassword = "put the user and password into the URL: redis://USER:PASSWORD@HOST:PORT"
)
