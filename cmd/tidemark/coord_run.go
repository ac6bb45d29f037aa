package main

import (
	"context"
	"errors"
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
	"github.com/tidemarkdb/tidemark/kv/coord"
)

// fencingEnv is the variable in which a command is told the fencing number of what it runs under.
const fencingEnv = "TIDEMARK_FENCING_NUMBER"

// holdFlags are those of commands that run another one while they hold something.
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

// check refuses flags and a command with which nothing can be held. The command may be left out.
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

// holding wraps the code of a verb that runs a command: SIGHUP (a terminal or connection that was
// closed) and SIGQUIT interrupt it, as SIGTERM does. Under nohup SIGHUP stays ignored.
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

// nameAndCommand checks arguments of the form NAME... -- COMMAND. optional says that the command
// may be left out.
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
		// Also if it is interrupted: what it holds is not to stay for a time to live.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if failed := session.Close(ending); failed != nil && err == nil && session.Err() == nil {
			return failed
		}
		return err
	})
}

// limited is a context that ends when --timeout is over.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.timeout)
}

// closeTimeout bounds how long it is tried to give back what is held.
const closeTimeout = 5 * time.Second

// runCommand runs a command until it ends, or held does, or session is about to: then it gets
// SIGTERM, and is killed if it does not end, at the latest when the session ends. session is nil if
// nothing is held. The error has its exit code, 128 and more if a signal ended it. in is its
// standard input; nil: nothing.
func (a *app) runCommand(ctx, held context.Context, session *coord.Session, f *holdFlags,
	in io.Reader, command []string, environment ...string) error {
	// Where the command ends with this process, it does so with this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var watching sync.WaitGroup
	defer watching.Wait()
	running, cancel := context.WithCancelCause(held)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	cmd := exec.CommandContext(running, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, a.out, a.err
	cmd.Env = append(os.Environ(), environment...)
	cmd.SysProcAttr = endsWithThread()
	if f.patience > 0 {
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = f.patience
	}
	if err := cmd.Start(); err != nil {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("start the command: %w", err)}
	}
	if session != nil {
		watching.Go(func() { endInTime(running, session, f.patience, cancel) })
		defer context.AfterFunc(session.Context(), func() { _ = cmd.Process.Kill() })()
	}
	err := cmd.Wait()
	if cause := context.Cause(running); cause != nil && ctx.Err() == nil {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%w; the command was ended", cause)}
	}
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil, err == nil:
		return err
	case !errors.As(err, &ended):
		return err
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exit.Silent(128 + int(status.Signal()))
	}
	return exit.Silent(ended.ExitCode())
}

// endInTime cancels a command early enough that it can end before the session does.
func endInTime(running context.Context, session *coord.Session, patience time.Duration,
	cancel context.CancelCauseFunc) {
	for {
		left := session.Left()
		if left <= patience {
			cancel(fmt.Errorf("the coordination service has not answered, and gives away in %s what is "+
				"held", left.Round(time.Millisecond)))
			return
		}
		// Not longer at a time: while the machine is suspended timers stand still, and the session's
		// clock does not.
		timer := time.NewTimer(min(left-patience, time.Second))
		select {
		case <-running.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func fencing(token coord.Token) string {
	return fencingEnv + "=" + strconv.FormatInt(int64(token), 10)
}
