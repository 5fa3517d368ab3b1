package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

const semEnvName = "LUATOMIC_TEST_SEMAPHORE"

// TestSemaphoreProcess is what the processes of TestSemaphoreKilledProcesses run: one
// that takes two permits, as soon as it can, and never gives them back.
func TestSemaphoreProcess(t *testing.T) {
	name := os.Getenv(semEnvName)
	if name == "" {
		t.Skip("runs as a process of TestSemaphoreKilledProcesses")
	}
	s := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: 5 * time.Second}).Semaphore(name, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready")
	lease, err := s.Acquire(ctx, 2)
	if err != nil {
		require.ErrorIs(t, err, context.Canceled)
		return
	}
	lease.Keep(ctx)
	<-ctx.Done()
}

// Row 19, with real processes: a holder that is killed is out when its lease is over,
// and waiters that were killed delay nobody meanwhile.
func TestSemaphoreKilledProcesses(t *testing.T) {
	t.Parallel()
	s, _, name, _ := newSemaphore(t, 2, &lock.Options{TTL: time.Minute})
	holder := startSemaphoreProcess(t, name)
	luatomictest.Eventually(t, 30*time.Second, "the process holds it", func() bool {
		info, err := s.Info(t.Context())
		require.NoError(t, err)
		return info.Used == 2
	})
	var waiters []*exec.Cmd
	for i := range 3 {
		waiters = append(waiters, startSemaphoreProcess(t, name))
		waitForPermits(t, s, i+1)
	}
	mine := acquiring(t.Context(), s, 1)
	waitForPermits(t, s, 4)
	for _, cmd := range append(waiters, holder) {
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}
	begun := time.Now()
	lease := permit(t, mine)
	t.Log("after the kill:", time.Since(begun))
	// Its last renewal was a third of a lease ago at most: with a waiter it were eight seconds and more.
	require.Less(t, time.Since(begun), 8*time.Second, "one lease of the dead holder, none of the dead waiters")
	require.NoError(t, lease.Release(t.Context()))
}

func startSemaphoreProcess(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestSemaphoreProcess$", "-test.timeout=2m")
	env := []string{semEnvName + "=" + name, "LUATOMIC_REDIS_URL=" + luatomictest.URL(t), "GORACE=atexit_sleep_ms=0"}
	cmd.Env = append(os.Environ(), env...)
	_, err = cmd.StdinPipe() // ends with this process
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for said := bufio.NewScanner(out); said.Scan(); {
		if said.Text() == "ready" {
			return cmd
		}
	}
	require.NoError(t, errors.New("the process did not come up"))
	return nil
}
