package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pinning gives the server one core and this process another one, so that a figure of one caller does not depend on
// where the scheduler happened to put the two.
type pinning struct {
	server int // its process, 0: not known
	all    unix.CPUSet
	done   bool // the last time
}

// newPinning finds the server's process by the id that INFO names, in its own namespace of processes if it has one.
func newPinning(processID string) *pinning {
	p := &pinning{}
	if runtime.NumCPU() < 2 || unix.SchedGetaffinity(0, &p.all) != nil {
		return p
	}
	found := 0
	statuses, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, file := range statuses {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		name, inside := "", ""
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			fields := strings.Fields(value)
			switch {
			case len(fields) == 0:
			case key == "Name":
				name = fields[0]
			case key == "NSpid":
				inside = fields[len(fields)-1]
			}
		}
		if inside == processID && (name == "redis-server" || name == "valkey-server") {
			found++
			p.server, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		}
	}
	if found != 1 {
		p.server = 0
	}
	return p
}

// apart runs f with the server on the first core, and all threads of this process on the second one. done says whether
// both could be moved.
func (p *pinning) apart(f func()) {
	if p.server == 0 {
		p.done = false
		f()
		return
	}
	var first, second unix.CPUSet
	cpus := make([]int, 0, 2)
	for cpu := 0; len(cpus) < 2 && cpu < 1024; cpu++ {
		if p.all.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		p.done = false
		f()
		return
	}
	first.Set(cpus[0])
	second.Set(cpus[1])
	p.done = place(p.server, &first) && place(os.Getpid(), &second)
	procs := runtime.GOMAXPROCS(1)
	defer func() {
		runtime.GOMAXPROCS(procs)
		place(p.server, &p.all)
		place(os.Getpid(), &p.all)
	}()
	f()
}

// place moves every thread of a process.
func place(pid int, set *unix.CPUSet) bool {
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/[0-9]*")
	if err != nil || len(threads) == 0 {
		return false
	}
	moved := true
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		moved = moved && err == nil && unix.SchedSetaffinity(id, set) == nil
	}
	return moved
}
