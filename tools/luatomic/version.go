package main

import (
	"cmp"
	"flag"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

// versionResult is the object on stdout.
type versionResult struct {
	Version string  `json:"version"`
	Commit  *string `json:"commit"`
	Go      string  `json:"go"`
	GoRedis string  `json:"go_redis"`
	Server  *string `json:"server"`
}

func versionCommand() *command {
	return &command{
		name: "version", args: "[flags]",
		about: "Print the versions of this program and of the server.",
		detail: `The server is asked only where --redis or REDIS_URL names one; of a cluster all masters are.
A report of a fault should have this line.`,
		output: `{"version","commit","go","go_redis","server"}; version: of the module, "(devel)" for a build from a working
  copy; commit: null where the build does not know it; server: null where none is named or it does not say`,
		example: `luatomic version --redis redis://127.0.0.1:6379`,
		flags:   func(*flag.FlagSet) {},
		check:   (*session).noArgs,
		run: func(s *session) error {
			out := builtFrom(debug.ReadBuildInfo())
			server, err := s.serverVersion()
			out.Server = server
			if emitErr := s.emit(out); emitErr != nil {
				return emitErr
			}
			return err
		},
	}
}

// builtFrom reads what the linker has written.
func builtFrom(info *debug.BuildInfo, ok bool) versionResult {
	out := versionResult{Version: "(devel)", Go: runtime.Version(), GoRedis: redis.Version()}
	if !ok {
		return out
	}
	out.Version = cmp.Or(info.Main.Version, out.Version)
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			out.Commit = &setting.Value
		}
	}
	return out
}

// serverVersion is nil where no server is named.
func (s *session) serverVersion() (*string, error) {
	if s.chosenURL() == "" {
		return nil, nil
	}
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	checks, err := luatomic.CheckServer(s.signals.stop, client)
	if s.signals.stop.Err() != nil {
		return nil, errInterrupted
	}
	var all []string
	for _, c := range checks {
		switch {
		case c.Check != "version" || slices.Contains(all, c.Detail):
		case c.Verdict == luatomic.CheckUnknown:
			s.note("luatomic: the version of %s is not known: %s", c.Node, c.Detail)
		default:
			all = append(all, c.Detail)
		}
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	text := strings.Join(all, ", ")
	return &text, nil
}
