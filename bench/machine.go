package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// machine is what a run was made on.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	OS     string `json:"os"`
	Go     string `json:"go"`
	Kernel string `json:"kernel"`
	Load   string `json:"load"` // average of the minute before the run
}

func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		CPU: "unknown"}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(text), " ")
	}
	return m
}

// moduleVersions are the versions of the peers that are Go modules.
func moduleVersions() map[string]string {
	wanted := map[string]string{
		"github.com/redis/go-redis/v9": "go-redis", "github.com/hibiken/asynq": "asynq",
		"github.com/bsm/redislock":         "redislock",
		"github.com/go-redsync/redsync/v4": "redsync", "github.com/redis/rueidis": "rueidislock",
		"github.com/nats-io/nats-server/v2": "NATS",
	}
	found := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, dep := range info.Deps {
		if name := wanted[dep.Path]; name != "" {
			found[name] = dep.Version
		}
	}
	return found
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, Linux %s, %s, load %s", m.CPU, m.Cores, m.OS, m.Kernel, m.Go, m.Load)
}
