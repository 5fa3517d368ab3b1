package main

import (
	"context"
	"flag"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/lua"
)

// heroEras are the eras of ActionHero's RPC by name.
var heroEras = map[string]actionhero.Era{
	"promise": actionhero.Promise, "promise18": actionhero.Promise18, "callback": actionhero.Callback,
}

// heroFlags say which cluster of ActionHero it is.
type heroFlags struct {
	dialect, era, channel, token string
}

func (h *heroFlags) add(fs *flag.FlagSet) {
	dialectFlag(fs, &h.dialect, actionHero)
	fs.StringVar(&h.era, "era", "", "of actionhero: promise (19.0.4 to 29, if left out), promise18 (18 to 19.0.2), "+
		"callback (9 to 17); the oldest `ERA` of the cluster")
	fs.StringVar(&h.channel, "channel", "", "of actionhero: general.channel there, a `NAME`; actionhero if left out")
	fs.StringVar(&h.token, "token", "", "of actionhero: general.serverToken there, a `TEXT`; change-me if left out")
}

// check refuses flags that exclude each other; others are the flags that only the native
// dialect has.
func (h *heroFlags) check(s *session, others map[string]bool) error {
	if h.dialect == "" {
		if h.era != "" || h.channel != "" || h.token != "" {
			return usagef("--era, --channel and --token are for --dialect %s; add it, or leave them out", actionHero)
		}
		return nil
	}
	if _, ok := heroEras[h.era]; h.era != "" && !ok {
		return usagef("--era %s is none of the eras; write one of %s", h.era,
			strings.Join(slices.Sorted(maps.Keys(heroEras)), ", "))
	}
	if s.prefix != "" {
		return usagef("--prefix: channels of the dialect %s have none; name the channel with --channel", h.dialect)
	}
	return foreignFlags(h.dialect, others)
}

func (h *heroFlags) options() *actionhero.Options {
	return &actionhero.Options{Channel: h.channel, ServerToken: h.token, Era: heroEras[h.era]}
}

// name is the channel.
func (h *heroFlags) name() string {
	if h.channel == "" {
		return actionHero
	}
	return h.channel
}

// runHeroNode connects the node until stop is called, which returns when it has left.
func runHeroNode(n *actionhero.Node) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.Run(ctx) // its error is the end of ctx
	}()
	return func() {
		cancel()
		<-done
	}
}

type heroNodes struct {
	Channel     string `json:"channel"`
	Subscribers int64  `json:"subscribers"`
}

// countNodes asks how many processes are subscribed.
func (h *heroFlags) countNodes(s *session) error {
	return s.withClient(func(ctx context.Context, client lua.Client) error {
		counts, err := client.PubSubNumSub(ctx, h.name()).Result()
		if err != nil {
			return err
		}
		return s.emit(heroNodes{h.name(), counts[h.name()]})
	})
}

// newHeroNode returns a node on the client; what fails in the background is shown.
func newHeroNode(s *session, client redis.UniversalClient, o *actionhero.Options) *actionhero.Node {
	o.OnError = s.warnRarely()
	return actionhero.NewNode(client, o)
}
