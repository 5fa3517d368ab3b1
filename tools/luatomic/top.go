package main

import (
	"cmp"
	"context"
	"flag"
	"os"
	"time"
)

// topFlags are those of luatomic top.
type topFlags struct{ every time.Duration }

func topCommand() *command {
	f := &topFlags{every: 2 * time.Second}
	return &command{
		name: "top", args: "[flags]",
		about: "Watch queues, running jobs, locks and nodes on a terminal.",
		detail: `Only reads. It draws in place until q or Ctrl-C, and leaves the terminal as it was. The queues with
most to do come first, and the jobs that have run longest. The rates are those of the last 10 s. Locks and buses
are found by a scan of all keys, for half a second at most and a tenth of the time. When the server does not
answer, what was read last stays, below the error.`,
		output:  `a picture, so stdout has to be a terminal; for JSON luatomic stats QUEUE --watch`,
		example: `luatomic top --every 5s`,
		flags: func(fs *flag.FlagSet) {
			fs.DurationVar(&f.every, "every", f.every, "read again every `DURATION`")
		},
		check: func(s *session) error {
			if err := atLeast("every", f.every, 100*time.Millisecond); err != nil {
				return err
			}
			return s.noArgs()
		},
		run: f.run,
	}
}

func (f *topFlags) run(s *session) error {
	if err := canDraw(s.out); err != nil {
		return err
	}
	address := cmp.Or(s.chosenURL(), defaultURL)
	// No hook reports an outage on stderr: it is part of the picture.
	client, err := dial(s.signals.stop, address, s.tls)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.signals.stop)
	r := newTopReader(client, s.prefix)
	views := make(chan topView)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.every(ctx, f.every, views)
	}()
	// A dial that hangs must not keep the user.
	defer func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(100 * time.Millisecond):
		}
		_ = client.Close()
	}()
	screen := openScreen(s.out.(*os.File), os.Stdin)
	defer screen.close()
	picture := topPicture{server: redacted(address), prefix: s.prefix, colours: s.colours}
	return picture.show(s, screen, views)
}

// show draws each view, and again each second and when the terminal changes, until the user ends it.
func (p *topPicture) show(s *session, screen *screen, views <-chan topView) error {
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		select {
		case <-s.signals.stop.Done():
			return errInterrupted
		case key := <-screen.keys:
			if key == 'q' || key == 'Q' {
				return nil
			}
			continue
		case sig := <-screen.signals:
			screen.got(sig)
		case p.view = <-views:
		case <-clock.C:
		}
		columns, lines := sizeOf(screen.out)
		if err := screen.draw(p.lines(columns, lines, time.Now())); err != nil {
			s.mu.Lock()
			s.lose(err)
			s.mu.Unlock()
			return errInterrupted
		}
	}
}
