package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"
)

// shellScripts are the completions: %[1]s are the patterns of what continues a command's name, %[2]s the cases of what
// can follow a name. An argument after -- is another command's, and the shell's own completion is right for it.
var shellScripts = map[string]string{
	"bash": `_luatomic() {
  local cmd= i words
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$cmd ${COMP_WORDS[i]}" in
      *" --") return ;;
      %[1]s) cmd="${cmd:+$cmd }${COMP_WORDS[i]}" ;;
    esac
  done
  case "$cmd" in
%[2]s  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _luatomic luatomic
`,
	"zsh": `#compdef luatomic
_luatomic() {
  local cmd= i words_after
  for ((i = 2; i < CURRENT; i++)); do
    case "$cmd ${words[i]}" in
      *" --") _default; return ;;
      %[1]s) cmd="${cmd:+$cmd }${words[i]}" ;;
    esac
  done
  case "$cmd" in
%[2]s  esac
  compadd -- ${=words_after} || _default
}
if [ "$funcstack[1]" = _luatomic ]; then
  _luatomic
else
  compdef _luatomic luatomic
fi
`,
	"fish": `function __luatomic_words
    set -l cmd ''
    for word in (commandline -opc)[2..-1]
        switch "$cmd $word"
            case '* --'
                return
            case %[1]s
                set cmd (string trim -- "$cmd $word")
        end
    end
    switch "$cmd"
%[2]s    end
end
complete -c luatomic -a '(__luatomic_words)'
`,
}

// choice is how a shell writes one case, of a name and the words after it.
var choice = map[string]string{
	"bash": "    %q) words=%q ;;\n",
	"zsh":  "    %q) words_after=%q ;;\n",
	"fish": "        case %q\n            string split -- ' ' %q\n",
}

func completionCommand() *command {
	return &command{
		name: "completion", args: "SHELL",
		about: "Print a completion of commands and flags, for bash, zsh or fish.",
		detail: `No server is asked: names of queues and locks are not completed. For zsh write it to a file
_luatomic in a folder of fpath, or evaluate it after compinit; for fish pipe it to source.`,
		output:  "a script for that shell",
		example: `eval "$(luatomic completion bash)"`,
		flags:   func(*flag.FlagSet) {},
		check: func(s *session) error {
			if err := s.oneArg("shell"); err != nil {
				return err
			}
			if shellScripts[s.args[0]] == "" {
				return usagef("there is no completion for %q; write bash, zsh or fish", s.args[0])
			}
			return nil
		},
		run: func(s *session) error {
			return s.print([]string{strings.TrimSuffix(completion(s.args[0]), "\n")})
		},
	}
}

// completion is the script of a shell, from the table of commands.
func completion(shell string) string {
	after := map[string][]string{}
	var names, patterns []string
	add := func(name, word string) {
		if after[name] == nil {
			names = append(names, name)
		}
		if !slices.Contains(after[name], word) {
			after[name] = append(after[name], word)
		}
	}
	for _, c := range commands() {
		first, second, two := strings.Cut(c.name, " ")
		add("", first)
		patterns = append(patterns, fmt.Sprintf("%q", " "+first))
		if two {
			add(first, second)
			patterns = append(patterns, fmt.Sprintf("%q", c.name))
		}
		c.flagSet().VisitAll(func(f *flag.Flag) { add(c.name, dashes(f.Name)) })
	}
	add("", "help")
	slices.Sort(patterns)
	patterns = slices.Compact(patterns)
	var cases strings.Builder
	for _, name := range names {
		fmt.Fprintf(&cases, choice[shell], name, strings.Join(after[name], " "))
	}
	between := "|"
	if shell == "fish" {
		between = " "
	}
	return fmt.Sprintf(shellScripts[shell], strings.Join(patterns, between), cases.String())
}
