package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/tools/internal/spelling"
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
	bare bool
	// tagged is true where the queues can have a --tag.
	tagged bool
	// named is true if the arguments are names of locks or methods.
	named bool
	flags func(fs *flag.FlagSet)
	// check validates the arguments before anything is connected.
	check func(s *session) error
	run   func(s *session) error
}

func (c *command) usageLine() string {
	line := strings.TrimSpace("luatomic " + c.name + " " + c.args)
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
	all = append(all, inSidekiq(queueCommands())...)
	all = append(all, inSidekiq(jobsCommands())...)
	all = append(all, locksCommands()...)
	all = append(all, rpcCommands()...)
	return append(all, statsCommand(), topCommand(), webCommand(), doctorCommand(), aclCommand(), loadCommand(),
		versionCommand(),
		completionCommand(), manCommand())
}

// program is the name of the flags before the command.
const program = "luatomic"

// errHelp reports that help was asked for and printed.
var errHelp = errors.New("help given")

// parseCommand finds the command and parses its flags, which may come before,
// between and after the arguments.
func parseCommand(args []string, stdout, stderr io.Writer) (*session, *command, error) {
	s := newSession(stdout, stderr)
	global := newFlagSet(program)
	s.globalFlags(global)
	refuseEmpty(global)
	if err := global.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, nil, explain(stdout, overview)
		}
		return nil, nil, usagef("%s", flagError(global, err))
	}
	args = global.Args()
	if len(args) == 0 {
		return nil, nil, explain(stdout, overview)
	}
	if args[0] == "help" {
		return nil, nil, help(stdout, args[1:])
	}
	cmd, args, err := findCommand(args)
	switch {
	case err != nil:
		return nil, nil, err
	case cmd == nil:
		return nil, nil, explain(stdout, overview)
	}
	fs := newFlagSet(cmd.name)
	s.globalFlags(fs)
	cmd.flags(fs)
	if cmd.tagged {
		s.tagFlag(fs)
	}
	refuseEmpty(fs)
	if err := s.parseArgs(fs, cmd, args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, nil, explain(stdout, cmd.help)
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
	var firsts, seconds []string
	for _, c := range commands() {
		words := strings.Fields(c.name)
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return c, args[len(words):], nil
		}
		firsts = append(firsts, words[0])
		if words[0] == args[0] {
			seconds = append(seconds, words[1])
		}
	}
	switch {
	case len(seconds) == 0:
		return nil, nil, usagef("there is no command %q; %s", args[0],
			meant(args[0], firsts, "luatomic help lists them"))
	case len(args) == 1:
		return nil, nil, usagef("%s is not a whole command; add one of %s", args[0], strings.Join(seconds, ", "))
	case args[1] == "-h", args[1] == "-help", args[1] == "--help":
		return nil, nil, nil
	}
	return nil, nil, usagef("there is no command %q; %s", args[0]+" "+args[1],
		meant(args[1], seconds, fmt.Sprintf("those of %s are %s", args[0], strings.Join(seconds, ", "))))
}

// meant asks for the name that a mistyped one is near to. Without one it is all; short names are near to everything.
func meant(name string, names []string, all string) string {
	if near := spelling.Nearest(name, names); len(name) > 2 && near != "" {
		return "did you mean " + near + "?"
	}
	return all
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
			return usagef("%s: %s", cmd.name, flagError(fs, err))
		}
		if args = fs.Args(); len(args) > 0 {
			s.args, args = append(s.args, args[0]), args[1:]
		}
	}
	if err := checkZero(fs); err != nil {
		return err
	}
	if cmd.child {
		s.child = after
	} else {
		s.args = append(s.args, after...)
	}
	if cmd.tagged || cmd.named {
		s.readLabels()
	}
	if s.prefix != "" {
		if err := keys.CheckName("prefix", s.prefix); err != nil {
			return err
		}
	}
	if s.tag != "" {
		return keys.CheckName("tag", s.tag)
	}
	return nil
}

// What the overview and the man page say of the whole program.
const (
	purpose  = "atomic operations of queues, locks and calls on Redis or Valkey"
	synopsis = "luatomic [--redis URL] COMMAND [flags]"
	channels = "Results are JSON on stdout, one object a line; messages go to stderr."
)

var exitCodes = []struct {
	code  int
	means string
}{
	{exitDone, "done"},
	{exitFailed, "failed"},
	{exitUsage, "wrong usage"},
	{exitTryLater, "try later: a lock is held, or no node took a call"},
	{exitInterrupted, "interrupted"},
	{exitBrokenPipe, "the reader of the output has closed it"},
}

func overview(w io.Writer) {
	fmt.Fprintf(w, "luatomic runs %s.\n\nusage: %s\n\n", purpose, synopsis)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-15s %s\n", c.name, c.about)
	}
	fmt.Fprintf(w, `
Start with: luatomic demo        (needs nothing installed)
Then:       luatomic CMD -h      (flags, output and an example of each)

%s
Exit codes:
`, channels)
	for _, e := range exitCodes {
		fmt.Fprintf(w, "  %-3d %s\n", e.code, e.means)
	}
}

func help(w io.Writer, args []string) error {
	if len(args) == 0 {
		return explain(w, overview)
	}
	cmd, rest, err := findCommand(append(slices.Clone(args), "-h"))
	switch {
	case err != nil:
		return err
	case len(rest) > 1:
		return usagef("there is no command %q; write luatomic help %s", strings.Join(args, " "), cmd.name)
	case cmd == nil:
		return explain(w, overview)
	}
	return explain(w, cmd.help)
}

// explain prints a text that was asked for.
func explain(w io.Writer, text func(io.Writer)) error {
	var b bytes.Buffer
	text(&b)
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	return errHelp
}

func (c *command) help(w io.Writer) {
	fmt.Fprintf(w, "%s\n\nusage: %s\n\n%s\n\nflags:\n", c.about, c.usageLine(), c.detail)
	c.flagSet().VisitAll(func(f *flag.Flag) {
		name, text := flagHelp(f)
		fmt.Fprintf(w, "  %-21s %s\n", name, text)
	})
	fmt.Fprintf(w, "\noutput:\n  %s\n\nexample:\n  %s\n", c.output, c.example)
}

// flagHelp is a flag with the kind of its value, and what it means.
func flagHelp(f *flag.Flag) (name, text string) {
	kind, text := flag.UnquoteUsage(f)
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
		text += " (default " + f.DefValue + ")"
	}
	return strings.TrimSpace(dashes(f.Name) + " " + kind), text
}

// flagSet is all flags of the command, for a text about them.
func (c *command) flagSet() *flag.FlagSet {
	fs, s := newFlagSet(c.name), newSession(io.Discard, io.Discard)
	s.globalFlags(fs)
	c.flags(fs)
	if c.tagged {
		s.tagFlag(fs)
	}
	return fs
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
