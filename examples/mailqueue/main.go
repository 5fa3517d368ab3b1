// Command mailqueue is a web server that accepts a mail, answers, and sends it afterwards, with retries and a dead set.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// Mail is the body of a job.
type Mail struct{ To, Subject, Text string }

// mails ties the name of the kind to the type of its body. Producers and consumers share this variable.
var mails = queue.NewKind[Mail]("mail")

// Sender hands a mail to a mail server. The id is the same at each attempt: a mail is sent twice if the process dies
// between Send and the ack, and the id lets the mail server recognize that.
type Sender interface {
	Send(ctx context.Context, id string, m Mail) error
}

// errNoSuchAddress is an error that no retry cures.
var errNoSuchAddress = errors.New("no such address")

type config struct {
	queue   string
	sender  Sender
	backoff func(failures int) time.Duration // nil: 1 s, doubled each time
}

// run serves HTTP and consumes the queue until ctx ends. Then it finishes what it has begun.
func run(ctx context.Context, client redis.UniversalClient, listener net.Listener, cfg config) error {
	q, err := queue.New(client, cfg.queue, &queue.Options{MaxFailures: 5, Receipt: keyKept})
	if err != nil {
		return err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	server := &http.Server{Handler: routes(q), ReadHeaderTimeout: 5 * time.Second}
	go func() { stop(server.Serve(listener)) }() // a server that fails ends the consumer too

	_, err = q.Consume(work, &queue.ConsumeOptions{
		Concurrency: 4,
		Backoff:     cfg.backoff,
		OnError:     func(err error) { log.Print(err) }, // names the job, never its body
	}, deliver(cfg.sender))
	if ctx.Err() != nil {
		err = nil // Ctrl-C is no failure
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(bound))
}

func routes(q *queue.Queue) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mails", func(w http.ResponseWriter, r *http.Request) { accept(w, r, q) })
	return mux
}

// keyKept is how long the server knows the Idempotency-Key of a request.
const keyKept = 24 * time.Hour

// accept pushes the mail. A client that repeats its request with the same Idempotency-Key within keyKept adds no second
// job, even if the mail has been sent, and gets the same id.
func accept(w http.ResponseWriter, r *http.Request, q *queue.Queue) {
	var m Mail
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&m); err != nil || m.To == "" {
		http.Error(w, `the body is no mail; send {"to":"ann@example.com","subject":"Hello"}`, http.StatusBadRequest)
		return
	}
	job, err := mails.Job(m)
	if err != nil {
		http.Error(w, "the mail cannot be encoded", http.StatusBadRequest)
		return
	}
	job.Timeout = 20 * time.Second // of one attempt
	pushed, err := push(r.Context(), q, r.Header.Get("Idempotency-Key"), job)
	switch {
	case errors.Is(err, lua.ErrBadName):
		http.Error(w, fmt.Sprintf("the Idempotency-Key cannot be used; send another: %v", err), http.StatusBadRequest)
		return
	case err != nil:
		log.Print(err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintln(w, pushed.IDs[0])
}

func push(ctx context.Context, q *queue.Queue, key string, job queue.Job) (queue.Pushed, error) {
	if key == "" {
		return q.Push(ctx, job)
	}
	return q.PushOnce(ctx, key, job)
}

// deliver sends one mail. nil acks the job; an error retries it after the back-off; Discard moves it to the dead set.
func deliver(sender Sender) queue.Handler {
	kinds := new(queue.Mux)
	mails.Serve(kinds, func(ctx context.Context, m Mail, d *queue.Delivery) error {
		err := sender.Send(ctx, d.ID, m)
		if errors.Is(err, errNoSuchAddress) {
			return queue.Discard(err)
		}
		return err
	})
	return kinds.Handle
}

// logSender is where a program would speak SMTP.
type logSender struct{}

func (logSender) Send(_ context.Context, id string, m Mail) error {
	log.Printf("mail %s to %s: %s", id, m.To, m.Subject)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the server
	err := open(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func open(ctx context.Context) error {
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil { // it repeats the URL, and so the password
		return errors.New("cannot read REDIS_URL; write redis://:PASSWORD@HOST:PORT, and %2F for / and %40 for @ in it")
	}
	if err := reach(ctx, *opts); err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }()
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "localhost:8080"))
	if err != nil {
		return err
	}
	log.Printf("listening on http://%s", listener.Addr())
	return run(ctx, client, listener, config{queue: "mail", sender: logSender{}})
}

// reach fails soon if no server answers: it makes one attempt of a second and a half, where the calls after it make
// many.
func reach(ctx context.Context, opts redis.Options) error {
	ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	opts.MaxRetries, opts.ContextTimeoutEnabled = -1, true
	client := redis.NewClient(&opts)
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("cannot use REDIS_URL, %s: %w; start a server there, or name another", opts.Addr, err)
	}
	return nil
}
