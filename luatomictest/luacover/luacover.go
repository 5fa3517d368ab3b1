// Package luacover lets luagen look into the scripts that the tests of a package run: which statements ran, and whether
// a test would miss a guard. Tests import it for its effect alone; package luatomictest does so already:
//
//	import _ "github.com/luatomic/luatomic/luatomictest/luacover"
//
// Without luagen it does nothing. "luagen cover" and "luagen mutate" run the tests with the variables that switch it
// on.
package luacover

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
)

const (
	// DirVar names the folder to which each test program writes what ran.
	DirVar = "LUAGEN_COVER"
	// MutantVar names a file: the digest of a script on its first line, the text to run in its place below.
	MutantVar = "LUAGEN_MUTANT"
	// TraceVar names the folder to which each test program writes what scripts did.
	TraceVar = "LUAGEN_TRACE"
	// TextsVar is the address at which luagen answers what to run in place of a script, with DirVar and TraceVar.
	TextsVar = "LUAGEN_TEXTS"
)

const (
	// Channel is where marks are published, each message "digest number number ...". The digest is that of the script
	// without marks.
	Channel = "luagen:cover"
	// TraceChannel is where a traced script publishes what it does, one line of text for each message.
	TraceChannel = "luagen:trace"
)

func init() {
	c := &collector{servers: map[string]*server{}, seen: map[string]bool{}, asked: map[string]bool{}}
	if c.dir = os.Getenv(DirVar); c.dir != "" {
		c.channel, c.take = Channel, c.note
	} else if c.dir = os.Getenv(TraceVar); c.dir != "" {
		c.channel, c.take = TraceChannel, c.line
	}
	if c.dir != "" {
		send.RewriteScript = func(name, sha, source string, at func(int) string) string {
			ask := Ask{Name: name, SHA: sha, Source: source}
			for line := range strings.Count(source, "\n") + 1 {
				ask.Places = append(ask.Places, at(line+1))
			}
			return ask.answer()
		}
		send.RewriteGuard = func(sha, source string) string { return Ask{SHA: sha, Source: source}.answer() }
		send.SeeClient, collecting = c.client, c
	}
	if file := os.Getenv(MutantVar); file != "" {
		mutate(file)
	}
}

// mutate has the mutant of a file run in place of its script.
func mutate(file string) {
	text, err := os.ReadFile(file)
	digest, mutant, ok := strings.Cut(string(text), "\n")
	if err != nil || !ok {
		panic(fmt.Sprintf("luacover: %s names no mutant: %v", MutantVar, err))
	}
	send.RewriteGuard = func(sha, source string) string {
		if sha == digest {
			return mutant
		}
		return source
	}
	send.RewriteScript = func(_, sha, source string, _ func(int) string) string {
		return send.RewriteGuard(sha, source)
	}
}

// collector subscribes to each server that a client sends scripts to, and writes down what they publish.
type collector struct {
	dir, channel string
	take         func(message string)

	mu      sync.Mutex
	servers map[string]*server // by address
	seen    map[string]bool    // by "digest number"
	asked   map[string]bool    // by address and user
	out     *os.File
}

func (c *collector) client(client any) {
	switch client := client.(type) {
	case *redis.Client:
		c.subscribe(client)
	case *redis.ClusterClient:
		_ = client.ForEachMaster(context.Background(), func(_ context.Context, node *redis.Client) error {
			c.subscribe(node)
			return nil
		})
	case *redis.Ring:
		_ = client.ForEachShard(context.Background(), func(_ context.Context, node *redis.Client) error {
			c.subscribe(node)
			return nil
		})
	default:
		for _, inner := range embedded(client) {
			c.client(inner)
		}
	}
}

// embedded lists what a struct embeds: the client that a wrapper of a test adds something to.
func embedded(client any) (all []any) {
	v := reflect.Indirect(reflect.ValueOf(client))
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Anonymous && f.IsExported() && v.Field(i).Kind() == reflect.Interface {
			all = append(all, v.Field(i).Interface())
		}
	}
	return all
}

// patience bounds how long the first calls to a server wait for the subscription, and Flush for the last messages.
const patience = 20 * time.Second

// server is a server that was sent scripts, with the subscription to what they publish.
type server struct {
	once         sync.Once
	client       *redis.Client
	subscription *redis.PubSub // nil where there is none
	end          string        // the message behind the last one
	reached      chan struct{} // closed when it came
}

// subscribe opens a connection of its own to the client's server, once for each address; calls wait until it stands, so
// that no statement is missed. Where the user may not subscribe, nothing is collected; where a user may not publish,
// nothing of that user's scripts. Then refused leaves a file.
func (c *collector) subscribe(client *redis.Client) {
	opts := *client.Options()
	c.mu.Lock()
	s := c.servers[opts.Addr]
	if s == nil {
		s = &server{end: endMark + rand.Text(), reached: make(chan struct{})}
		c.servers[opts.Addr] = s
	}
	user := opts.Addr + " " + opts.Username
	ask := !c.asked[user]
	c.asked[user] = true
	c.mu.Unlock()
	opts.PushNotificationProcessor, opts.MaintNotificationsConfig = nil, nil
	s.once.Do(func() { c.collect(s, &opts) })
	if ask {
		c.ask(&opts)
	}
}

// ask publishes once as the user. A script ignores the error of its marks, so without this no error shows that the
// server refuses them.
func (c *collector) ask(opts *redis.Options) {
	client := redis.NewClient(opts)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.refused(client.Publish(ctx, c.channel, endMark+"of none").Err())
}

// RefusedExt is the extension of the files with the errors of users who may not publish or not subscribe.
const RefusedExt = ".refused"

// refused leaves a file for luagen where the server refuses a user a command that collecting needs.
func (c *collector) refused(err error) {
	if redis.HasErrorPrefix(err, "NOPERM") {
		_ = os.WriteFile(filepath.Join(c.dir, rand.Text()+RefusedExt), []byte(err.Error()), 0o644)
	}
}

func (c *collector) collect(s *server, opts *redis.Options) {
	s.client = redis.NewClient(opts)
	sub := s.client.Subscribe(context.Background(), c.channel)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := sub.Receive(ctx); err != nil {
		c.refused(err)
		_ = sub.Close()
		_ = s.client.Close()
		return
	}
	s.subscription = sub
	go func() {
		for m := range sub.Channel(redis.WithChannelSize(10000)) {
			switch {
			case m.Payload == s.end:
				close(s.reached)
			case !strings.HasPrefix(m.Payload, endMark): // of another test program
				c.take(m.Payload)
			}
		}
	}()
}

// endMark begins the messages of Flush.
const endMark = "end-of-tests "

// Flush returns when what the scripts have published is written down, and ends the subscriptions. A test program calls
// it after its last test; luatomictest.Main does. Servers that are gone are not waited for.
func Flush() {
	if collecting != nil {
		collecting.flush()
	}
}

func (c *collector) flush() {
	c.mu.Lock()
	servers := slices.Collect(maps.Values(c.servers))
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range servers {
		s.once.Do(func() {}) // a first call that is under way ends
		if s.subscription == nil {
			continue
		}
		if s.client.Publish(ctx, c.channel, s.end).Err() == nil {
			select {
			case <-s.reached:
			case <-ctx.Done():
			}
		}
		_ = s.subscription.Close()
		_ = s.client.Close()
	}
}

// collecting is the collector of this test program, nil without one.
var collecting *collector

// note writes the statements of a message that are new.
func (c *collector) note(message string) {
	words := strings.Fields(message)
	if len(words) < 2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range words[1:] {
		line := words[0] + " " + n
		if !c.seen[line] {
			c.seen[line] = true
			c.write(line)
		}
	}
}

// line writes a message as it is.
func (c *collector) line(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(message)
}

// write appends to a file of this process, at once: a test program does not say when it ends.
func (c *collector) write(line string) {
	if c.out == nil {
		var err error
		if c.out, err = os.CreateTemp(c.dir, fmt.Sprintf("%s-*.txt", filepath.Base(os.Args[0]))); err != nil {
			panic(fmt.Sprintf("luacover: %v", err))
		}
	}
	_, _ = fmt.Fprintln(c.out, line)
}
