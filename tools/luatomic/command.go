package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// command is one subcommand. run works on what the flags were parsed into.
type command struct {
	name    string
	args    string // of the usage line
	about   string // one line, for the overview
	detail  string // what a user must know beyond the flags
	output  string // fields of the JSON on stdout
	example string
	// child is true where a command of the user's own follows after --.
	child bool
	// bare is true where that command may be left out.
	bare  bool
	flags func(fs *flag.FlagSet)
	// check validates the arguments before anything is connected.
	check func(s *session) error
	run   func(s *session) error
}

func (c *command) usageLine() string {
	line := "luatomic " + c.name + " " + c.args
	switch {
	case c.bare:
		line += " [-- CMD [ARG...]]"
	case c.child:
		line += " -- CMD [ARG...]"
	}
	return line
}

func commands() []*command {
	all := []*command{demoCommand(), pushCommand(), promoteCommand(), consumeCommand(), lockCommand()}
	all = append(all, locksCommands()...)
	all = append(all, rpcCommands()...)
	return append(all, statsCommand(), doctorCommand(), aclCommand(), loadCommand())
}

// errHelp reports that help was asked for and printed.
var errHelp = errors.New("help given")

// parseCommand finds the command and parses its flags, which may come before,
// between and after the arguments.
func parseCommand(args []string, stdout, stderr io.Writer) (*session, *command, error) {
	s := newSession(stdout, stderr)
	global := newFlagSet("luatomic")
	s.globalFlags(global)
	if err := global.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			overview(stdout)
			return nil, nil, errHelp
		}
		return nil, nil, usagef("%v", err)
	}
	args = global.Args()
	if len(args) == 0 {
		overview(stdout)
		return nil, nil, errHelp
	}
	if args[0] == "help" {
		return nil, nil, help(stdout, args[1:])
	}
	cmd, args, err := findCommand(args)
	switch {
	case err != nil:
		return nil, nil, err
	case cmd == nil:
		overview(stdout)
		return nil, nil, errHelp
	}
	fs := newFlagSet(cmd.name)
	s.globalFlags(fs)
	cmd.flags(fs)
	if err := s.parseArgs(fs, cmd, args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			cmd.help(stdout)
			return nil, nil, errHelp
		}
		return nil, cmd, err
	}
	return s, cmd, cmd.check(s)
}

func newFlagSet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

// findCommand takes the command's name, of one part or two, from the arguments. It is nil where help is asked for
// a first part that several commands share.
func findCommand(args []string) (*command, []string, error) {
	var names, seconds []string
	for _, c := range commands() {
		words := strings.Fields(c.name)
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return c, args[len(words):], nil
		}
		names = append(names, c.name)
		if words[0] == args[0] {
			seconds = append(seconds, words[1])
		}
	}
	switch {
	case len(seconds) == 0:
		return nil, nil, usagef("there is no command %q; the commands are %s", args[0], strings.Join(names, ", "))
	case len(args) == 1:
		return nil, nil, usagef("%s is not a whole command; add one of %s", args[0], strings.Join(seconds, ", "))
	case args[1] == "-h", args[1] == "-help", args[1] == "--help":
		return nil, nil, nil
	}
	return nil, nil, usagef("there is no command %q; those of %s are %s", args[0]+" "+args[1], args[0],
		strings.Join(seconds, ", "))
}

// parseArgs splits flags, arguments and the child's command line, which is all
// after the first --.
func (s *session) parseArgs(fs *flag.FlagSet, cmd *command, args []string) error {
	var after []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, after = args[:i], args[i+1:]
	}
	args = joinWatch(fs, args)
	for len(args) > 0 {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return err
			}
			return usagef("%s: %v%s", cmd.name, err, flagCure(err))
		}
		if args = fs.Args(); len(args) > 0 {
			s.args, args = append(s.args, args[0]), args[1:]
		}
	}
	if cmd.child {
		s.child = after
	} else {
		s.args = append(s.args, after...)
	}
	if s.prefix != "" {
		return lua.CheckName("prefix", s.prefix)
	}
	return nil
}

// flagCure is what to do about a value that was taken for a flag.
func flagCure(err error) string {
	_, name, ok := strings.Cut(err.Error(), "not defined: -")
	if ok && name != "" && strings.Trim(name[:1], "0123456789.") == "" {
		return "; write an argument that begins with - last, after --"
	}
	return ""
}

// joinWatch lets an interval follow --watch without a "=", which package flag does
// not offer for a value that may be left out.
func joinWatch(fs *flag.FlagSet, args []string) []string {
	i := slices.IndexFunc(args, func(a string) bool { return a == "--watch" || a == "-watch" })
	if i < 0 || i+1 == len(args) {
		return args
	}
	if d, err := time.ParseDuration(args[i+1]); err != nil || d < 0 {
		// A number alone is meant as an interval too; Set reports that its unit is missing.
		_, notNumber := strconv.ParseFloat(args[i+1], 64)
		f := fs.Lookup("watch")
		if f == nil || notNumber != nil {
			return args
		}
		if _, takes := f.Value.(*interval); !takes {
			return args
		}
	}
	joined := append(slices.Clone(args[:i]), "--watch="+args[i+1])
	return append(joined, args[i+2:]...)
}

func overview(w io.Writer) {
	fmt.Fprint(w, "luatomic runs atomic operations of queues, locks and calls on Redis or Valkey.\n\n"+
		"usage: luatomic [--redis URL] COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-14s %s\n", c.name, c.about)
	}
	fmt.Fprint(w, `
Start with: luatomic demo        (needs nothing installed)
Then:       luatomic CMD -h      (flags, output and an example of each)

Results are JSON on stdout, one object a line; messages go to stderr.
Exit codes: 0 done, 1 failed, 2 wrong usage, 75 not obtained, try later, 130 interrupted,
141 the reader of the output has closed it.
`)
}

func help(w io.Writer, args []string) error {
	if len(args) == 0 {
		overview(w)
		return errHelp
	}
	cmd, _, err := findCommand(append(slices.Clone(args), "-h"))
	switch {
	case err != nil:
		return err
	case cmd == nil:
		overview(w)
	default:
		cmd.help(w)
	}
	return errHelp
}

func (c *command) help(w io.Writer) {
	fmt.Fprintf(w, "%s\n\nusage: %s\n\n%s\n\nflags:\n", c.about, c.usageLine(), c.detail)
	fs := newFlagSet(c.name)
	newSession(io.Discard, io.Discard).globalFlags(fs)
	c.flags(fs)
	fs.VisitAll(func(f *flag.Flag) {
		kind, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  %-21s %s\n", dashes(f.Name)+" "+kind, text)
	})
	fmt.Fprintf(w, "\noutput:\n  %s\n\nexample:\n  %s\n", c.output, c.example)
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
