package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	defaultURL = "redis://127.0.0.1:6379"
	// reachWithin bounds the first PING, so that a wrong address shows soon.
	reachWithin = 2 * time.Second
)

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
	address := s.chosenURL()
	if address == "" {
		address = defaultURL
	}
	client, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	client.AddHook(&outage{s: s, server: redacted(address)})
	return client, nil
}

// redacted is the URL without its password.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the server"
	}
	return u.Redacted()
}

func dial(ctx context.Context, address string) (redis.UniversalClient, error) {
	single, cluster, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	if single != nil {
		isNode, err := probe(ctx, *single)
		if err != nil {
			return nil, unreachable(address, err)
		}
		if !isNode {
			return redis.NewClient(single), nil
		}
		// One node of a cluster knows the others.
		cluster = &redis.ClusterOptions{
			Addrs: []string{single.Addr}, Username: single.Username, Password: single.Password,
			TLSConfig: single.TLSConfig, DialTimeout: single.DialTimeout, ContextTimeoutEnabled: true,
		}
	}
	client := redis.NewClusterClient(cluster)
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close()
		return nil, unreachable(address, err)
	}
	return client, nil
}

// parseURL gives the options of one server or, with addr parameters, of a cluster.
func parseURL(address string) (*redis.Options, *redis.ClusterOptions, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, badURL(err)
	}
	if u.Scheme != "unix" && u.Query().Has("addr") {
		o, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, nil, badURL(err)
		}
		o.ContextTimeoutEnabled = true
		if o.DialTimeout == 0 {
			o.DialTimeout = reachWithin
		}
		return nil, o, nil
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, nil, badURL(err)
	}
	o.ContextTimeoutEnabled = true
	if o.DialTimeout == 0 {
		o.DialTimeout = reachWithin
	}
	return o, nil, nil
}

// badURL does not repeat the URL: it may hold a password.
func badURL(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		err = parse.Err
	}
	text := strings.TrimPrefix(err.Error(), "redis: ")
	cure := "write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH, as --redis or REDIS_URL"
	if bare := quotation.ReplaceAllString(text, ""); bare != text {
		text = strings.TrimRight(bare, ": ")
		cure += "; in a password / ? # @ % are written %2F %3F %23 %40 %25"
	}
	return usagef("server URL: %s; %s", text, cure)
}

// quotation is what an error quotes of a URL: a part of the password, where a character
// of it ends the part before the host.
var quotation = regexp.MustCompile(`\s*"(?:[^"\\]|\\.)*"`)

// probe asks once, without the repeats of the client that is used later, and
// finds out whether the server is a node of a cluster.
func probe(ctx context.Context, o redis.Options) (isNode bool, err error) {
	o.MaxRetries, o.DialerRetries = -1, 1
	client := redis.NewClient(&o)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return false, err
	}
	// A user without the right to ask INFO names a cluster by addr parameters.
	info, _ := client.Info(ctx, "cluster").Result()
	return strings.Contains(info, "cluster_enabled:1"), nil
}

// unreachable names the address and the cure.
func unreachable(address string, err error) error {
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	text := err.Error()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		text = fmt.Sprintf("no answer within %v", reachWithin)
	}
	return fmt.Errorf("cannot use %s: %s; %s", redacted(address), text, reachCure(text))
}

// reachCure is what to do about a server that cannot be used.
func reachCure(text string) string {
	for begin, cure := range map[string]string{
		"no answer":                     notRedis,
		"redis: invalid":                notRedis, // its reply cannot be read
		"redis: can't parse":            notRedis,
		"NOAUTH":                        withPassword,
		"WRONGPASS":                     withPassword,
		"ERR DB index":                  "name a database that it has, as the path of the URL; 0 without one",
		"ERR SELECT is not":             "leave the path out of the URL: a cluster has one database",
		"ERR This instance has cluster": "leave addr out of the URL: it is a single server",
		"NOPERM":                        "give this user the rights that luatomic acl prints",
		"LOADING":                       "try again when it has read its data",
		"CLUSTERDOWN":                   noSlots,
		"redis: cluster has no nodes":   noSlots,
		"ERR max number of clients":     "end some of its clients, or raise maxclients",
		"MASTERDOWN":                    "name the master",
		"DENIED":                        "the message says how",
	} {
		if strings.HasPrefix(text, begin) {
			return cure
		}
	}
	return "start a server there, or name another with --redis URL or REDIS_URL"
}

const (
	notRedis = "check that it is a Redis server and whether it wants TLS (rediss://), " +
		"or name another with --redis URL or REDIS_URL"
	noSlots      = "try again when all slots are served; CLUSTER INFO shows them"
	withPassword = "put the user and password into the URL: redis://USER:PASSWORD@HOST:PORT"
)
