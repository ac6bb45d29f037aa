package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/watchdog"
	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// fencingEnv is the environment variable with the fencing number of the lock or leadership under
// which a command runs.
const fencingEnv = "TIDEMARK_FENCING_NUMBER"

// holdFlags are the flags of commands that run another command while they hold a lock, leadership
// or the like.
type holdFlags struct {
	coordFlags
	ttl, patience time.Duration
}

func (f *holdFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.ttl, "ttl", coord.DefaultTTL,
		"how long the service waits for this process if it does not hear from it")
	flags.DurationVar(&f.patience, "kill-after", defaultPatience,
		"how long COMMAND has to end after SIGTERM before it is killed: less than a third of --ttl "+
			"(by default no more than a quarter of it); 0 is to kill it at once")
}

const defaultPatience = 2 * time.Second

// check validates the flags and the command. The command may be missing.
func (f *holdFlags) check(cmd *cobra.Command, command []string) error {
	given := cmd.Flags().Changed("kill-after")
	switch {
	case f.patience < 0:
		return exit.Usagef("--kill-after %s: give a time, or 0 to kill the command at once", f.patience)
	case f.ttl > 0 && !given:
		f.patience = min(f.patience, f.ttl/4)
	case f.ttl > 0 && f.patience >= (f.ttl+2)/3:
		return exit.Usagef("--kill-after %s: give less than a third of --ttl %s: the command has to "+
			"be ended before the service gives away what is held", f.patience, f.ttl)
	}
	if len(command) == 0 {
		return nil
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("start the command: %w", err)}
	}
	return nil
}

func (f *holdFlags) registerPatience(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.patience, "kill-after", defaultPatience,
		"how long COMMAND has to end after SIGTERM before it is killed; 0 is to kill it at once")
}

// holding wraps the code of a verb that runs a command. SIGHUP (a terminal or connection that was
// closed) and SIGQUIT interrupt the verb, as SIGTERM does. Under nohup, SIGHUP stays ignored.
func (a *app) holding(
	do func(ctx context.Context, args []string) error,
) func(*cobra.Command, []string) error {
	return a.verb(func(ctx context.Context, args []string) error {
		signals := []os.Signal{syscall.SIGQUIT}
		if !signal.Ignored(syscall.SIGHUP) {
			signals = append(signals, syscall.SIGHUP)
		}
		limited, stop := signal.NotifyContext(ctx, signals...)
		defer stop()
		err := do(limited, args)
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			return &exit.Error{Code: exit.Interrupted, Err: err}
		}
		return err
	})
}

// afterDash splits the arguments at the --: names before it, and a command after it.
func afterDash(cmd *cobra.Command, args []string) (names, command []string) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

// nameAndCommand validates arguments of the form NAME... -- COMMAND. optional: the command may be
// missing.
func nameAndCommand(names string, count int, optional bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		before, command := afterDash(cmd, args)
		if len(before) == count && (len(command) > 0 || optional && cmd.ArgsLenAtDash() < 0) {
			return nil
		}
		if len(before) > count && len(command) == 0 {
			return exit.Usagef("%s takes %s: the command comes after --", cmd.Name(), names)
		}
		return exit.Usagef("%s takes %s", cmd.Name(), names)
	}
}

// withSession runs do under a session, which it closes.
func (a *app) withSession(ctx context.Context, f *holdFlags,
	do func(*coord.Client, *coord.Session) error) error {
	return a.withCoord(ctx, &f.coordFlags, func(client *coord.Client) error {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown host"
		}
		limited, stop := a.limited(ctx)
		session, err := client.NewSession(limited, coord.TTL(f.ttl),
			coord.Label(fmt.Sprintf("%s, process %d", host, os.Getpid())))
		stop()
		if err != nil {
			return err
		}
		err = do(client, session)
		// The session is closed even after an interrupt. Otherwise the lock would stay for its time to
		// live.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if failed := session.Close(ending); failed != nil && err == nil && session.Err() == nil {
			return failed
		}
		return err
	})
}

// limited returns a context that ends when --timeout is over.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.timeout)
}

// closeTimeout limits the attempts to release the lock.
const closeTimeout = 5 * time.Second

// runCommand runs a command until it ends, held ends, or session is about to end. In the last two
// cases the command and its child processes get SIGTERM, and are killed if they do not end, at the
// latest when the session ends, whatever happens to this process meanwhile (package watchdog).
// session is nil if nothing is held. The error has the command's exit code, or 128 plus the number
// of the signal that ended it. in is the command's standard input; nil: empty.
func (a *app) runCommand(ctx, held context.Context, session *coord.Session, f *holdFlags,
	in io.Reader, command []string, environment ...string) error {
	// If a command ends together with its parent, it ends when the parent's thread ends. So the thread
	// must not change.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	running, cancel := context.WithCancelCause(held)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	process, err := watchdog.Start(watchdog.Command{Args: command,
		Env: append(os.Environ(), environment...), In: in, Out: a.out, Err: a.err,
		Patience: f.patience, Interactive: in != nil && a.inTerminal && a.outTerminal,
		Failed: cancel}, deadlineOf(session))
	switch {
	case err != nil && session != nil && leftFor(session) <= f.patience:
		return &exit.Error{Code: exit.Failed, Err: errSilent(session.Left())}
	case err != nil:
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("start the command: %w", err)}
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	ended, stop := context.WithCancel(running)
	defer stop()
	if session != nil {
		watching.Go(func() { keepInTime(ended, session, f.patience, process, cancel) })
	}
	defer context.AfterFunc(running, process.End)()
	state, overdue, err := process.Wait()
	if overdue {
		cancel(errSilent(0))
	}
	switch cause := context.Cause(running); {
	case ctx.Err() != nil:
		return exit.Silent(exit.Interrupted)
	case cause != nil:
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%w; the command was ended", cause)}
	case err != nil:
		return err
	case state.Success():
		return nil
	}
	return exit.Silent(watchdog.Ended(state))
}

// deadlineOf returns the time, by the watchdog's clock, by which a command under a session must
// have ended.
func deadlineOf(session *coord.Session) int64 {
	if session == nil {
		return watchdog.Never
	}
	// INVARIANT: the clock is read first. If this process is stopped in between, Left is smaller,
	// and the deadline is not later.
	now := watchdog.Clock()
	return now + int64(leftFor(session))
}

// leftFor returns how long a command may still run under a session that is no longer renewed. The
// time that a busy system takes to kill the command is subtracted.
func leftFor(session *coord.Session) time.Duration {
	return session.Left() - min(session.TTL()/10, 500*time.Millisecond)
}

// keepInTime tells the watchdog of each later deadline of a session. It cancels the command early
// enough for the command to end before the session does.
func keepInTime(running context.Context, session *coord.Session, patience time.Duration,
	process *watchdog.Process, cancel context.CancelCauseFunc) {
	for {
		process.Until(deadlineOf(session))
		left := leftFor(session)
		if left <= patience {
			cancel(errSilent(session.Left()))
			return
		}
		// The wait has short steps, because the session is renewed meanwhile, and because timers stop
		// while the machine is suspended, although the session's clock does not.
		if backoff.Sleep(running, min(left-patience, session.TTL()/10, time.Second)) != nil {
			return
		}
	}
}

func errSilent(left time.Duration) error {
	return fmt.Errorf("the coordination service has not answered, and gives away in %s what is held",
		left.Round(time.Millisecond))
}

func fencing(token coord.Token) string {
	return fencingEnv + "=" + strconv.FormatInt(int64(token), 10)
}
