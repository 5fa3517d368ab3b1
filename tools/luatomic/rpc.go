package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/rpc"
)

// rpcCommands are those that begin with rpc.
func rpcCommands() []*command {
	return []*command{rpcServeCommand(), rpcCallCommand(), rpcNodesCommand(), rpcTopCommand()}
}

// opaque passes bodies on as they are; the commands check their form.
type opaque struct{}

func (opaque) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (opaque) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}

// busFlags name the bus.
type busFlags struct {
	name, keyFile string
	keys          [][]byte
	why           atomic.Pointer[error] // the first error of the open bus
}

func (f *busFlags) add(fs *flag.FlagSet) {
	fs.StringVar(&f.name, "bus", defaultBus, "`NAME` of the bus")
}

const defaultBus = "default"

// addKeys is for the commands that send frames or read them.
func (f *busFlags) addKeys(fs *flag.FlagSet) {
	fs.StringVar(&f.keyFile, "keys", "", "`FILE` with the keys that prove the origin of frames, one a line, "+
		"the first signs; base64:... for bytes")
}

func (f *busFlags) check() error {
	f.name = show.Named(f.name)
	if err := keys.CheckName("bus", f.name); err != nil {
		return err
	}
	if f.keyFile == "" {
		return nil
	}
	text, err := os.ReadFile(f.keyFile)
	if err != nil {
		return fmt.Errorf("--keys: %w; name a file with one key a line", err)
	}
	if info, err := os.Stat(f.keyFile); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("--keys %s: other users can read the file; chmod 600 it, and change the keys", f.keyFile)
	}
	for line := range bytes.Lines(text) {
		key, err := readKey(bytes.TrimRight(line, "\r\n"))
		if err != nil {
			return fmt.Errorf("--keys %s: %w", f.keyFile, err)
		}
		if len(key) > 0 {
			f.keys = append(f.keys, key)
		}
	}
	if len(f.keys) == 0 {
		return fmt.Errorf("--keys %s: the file has no key; write one a line", f.keyFile)
	}
	return nil
}

// readKey never repeats a key in its error.
func readKey(line []byte) ([]byte, error) {
	encoded, ok := bytes.CutPrefix(line, []byte("base64:"))
	if !ok {
		return line, nil
	}
	key, err := base64.StdEncoding.DecodeString(string(encoded))
	if err != nil {
		return nil, errors.New("the text after base64: is not base64")
	}
	return key, nil
}

// open makes the bus, which is not connected yet.
func (f *busFlags) open(s *session, client redis.UniversalClient, opts rpc.Options) (*rpc.Bus, error) {
	opts.Prefix, opts.Keys, opts.Codec = s.prefix, f.keys, opaque{}
	warn := s.warnRarely()
	opts.OnError = func(err error) {
		f.why.CompareAndSwap(nil, &err)
		warn(err)
	}
	return rpc.New(client, f.name, &opts)
}

// repeatAfter is how long a message is not repeated: while the server is away, each of
// several loops meets the same error many times a second.
const repeatAfter = 10 * time.Second

func (s *session) warnRarely() func(error) {
	var mu sync.Mutex
	said := make(map[string]time.Time)
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		now, text := time.Now(), err.Error()
		if at, ok := said[text]; ok && now.Sub(at) < repeatAfter {
			return
		}
		if len(said) > 100 {
			clear(said)
		}
		said[text] = now
		s.warn(err)
	}
}

// runBus connects the bus until stop is called, which returns when it has left.
func runBus(b *rpc.Bus) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Run(ctx) // its error is the end of ctx
	}()
	return func() {
		cancel()
		<-done
	}
}
