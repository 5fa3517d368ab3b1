package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
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
	// child says that a command of the user's own follows after --.
	child bool
	flags func(fs *flag.FlagSet)
	// check judges the arguments before anything is connected.
	check func(s *session) error
	run   func(s *session) error
}

func (c *command) usageLine() string {
	line := "luatomic " + c.name + " " + c.args
	if c.child {
		line += " -- CMD [ARG...]"
	}
	return line
}

func commands() []*command {
	return []*command{
		demoCommand(), pushCommand(), promoteCommand(), consumeCommand(), lockCommand(), statsCommand(),
	}
}

// errHelp says that help was asked for and given.
var errHelp = errors.New("help given")

// parseCommand finds the command and parses its flags, which may stand before,
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
	cmd, err := findCommand(args[0])
	if args[0] == "help" {
		return nil, nil, help(stdout, args[1:])
	}
	if err != nil {
		return nil, nil, err
	}
	fs := newFlagSet(cmd.name)
	s.globalFlags(fs)
	cmd.flags(fs)
	if err := s.parseArgs(fs, cmd, args[1:]); err != nil {
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

func findCommand(name string) (*command, error) {
	all := commands()
	names := make([]string, len(all))
	for i, c := range all {
		if c.name == name {
			return c, nil
		}
		names[i] = c.name
	}
	return nil, usagef("there is no command %q; the commands are %s", name, strings.Join(names, ", "))
}

// parseArgs splits flags, arguments and the child's command line, which is all
// after the first --.
func (s *session) parseArgs(fs *flag.FlagSet, cmd *command, args []string) error {
	var after []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, after = args[:i], args[i+1:]
	}
	args = joinWatch(args)
	for len(args) > 0 {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return err
			}
			return usagef("%s: %v", cmd.name, err)
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

// joinWatch lets an interval follow --watch without a "=", which package flag does
// not offer for a value that may be left out.
func joinWatch(args []string) []string {
	i := slices.IndexFunc(args, func(a string) bool { return a == "--watch" || a == "-watch" })
	if i < 0 || i+1 == len(args) {
		return args
	}
	if d, err := time.ParseDuration(args[i+1]); err != nil || d <= 0 {
		return args
	}
	joined := append(slices.Clone(args[:i]), "--watch="+args[i+1])
	return append(joined, args[i+2:]...)
}

func overview(w io.Writer) {
	fmt.Fprint(w, "luatomic runs atomic queue and lock operations on Redis or Valkey.\n\nusage: luatomic [--redis URL] COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-8s %s\n", c.name, c.about)
	}
	fmt.Fprint(w, `
Start with: luatomic demo        (needs nothing installed)
Then:       luatomic CMD -h      (flags, output and an example of each)

Results are JSON on stdout, one object a line; messages go to stderr.
Exit codes: 0 done, 1 failed, 2 wrong usage, 75 not obtained, try later, 130 interrupted.
`)
}

func help(w io.Writer, args []string) error {
	if len(args) == 0 {
		overview(w)
		return errHelp
	}
	cmd, err := findCommand(args[0])
	if err != nil {
		return err
	}
	cmd.help(w)
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
		fmt.Fprintf(w, "  %-16s %s\n", dashes(f.Name)+" "+kind, text)
	})
	fmt.Fprintf(w, "\noutput:\n  %s\n\nexample:\n  %s\n", c.output, c.example)
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
