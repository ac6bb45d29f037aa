package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
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
	f.registerPatience(cmd)
}

func (f *holdFlags) registerPatience(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.patience, "kill-after", 2*time.Second,
		"how long COMMAND has to end after SIGTERM before it is killed; 0 is to kill it at once")
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
		session, err := client.NewSession(ctx, coord.TTL(f.ttl),
			coord.Label(fmt.Sprintf("%s, process %d", host, os.Getpid())))
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

// closeTimeout bounds how long it is tried to give back what is held.
const closeTimeout = 5 * time.Second

// runCommand runs a command until it ends, or held does: then it gets SIGTERM, and is killed if it
// does not end. The error has its exit code, 128 and more if a signal ended it. in is its standard
// input; nil: nothing.
func (a *app) runCommand(ctx, held context.Context, f *holdFlags, in io.Reader, command []string,
	environment ...string) error {
	running, cancel := context.WithCancelCause(held)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	cmd := exec.CommandContext(running, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, a.out, a.err
	cmd.Env = append(os.Environ(), environment...)
	if f.patience > 0 {
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = f.patience
	}
	if err := cmd.Start(); err != nil {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("start the command: %w", err)}
	}
	err := cmd.Wait()
	if cause := context.Cause(held); cause != nil && ctx.Err() == nil {
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

func fencing(token coord.Token) string {
	return fencingEnv + "=" + strconv.FormatInt(int64(token), 10)
}
