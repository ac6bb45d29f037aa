package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

const (
	defaultEndpoint = "127.0.0.1:7400"
	endpointsEnv    = "TIDEMARK_ENDPOINTS"
	defaultTimeout  = 10 * time.Second
)

// app is one run of the program: its streams, and the flags that several commands share.
type app struct {
	streams

	endpoints []string
	timeout   time.Duration
	tls       argument.ClientTLS
	locality  string
	// user and passwordFile give the client's user. See credentials.
	user, passwordFile string
	format             output.Format
	output             string
	// headers: output in tsv begins with a line of names. color is the value of --color.
	headers bool
	color   string

	// running: the command line was parsed, and the command's own code has begun.
	running bool
}

// run executes the program without touching the process, and returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exit.OK
	}
	if !a.running {
		// Errors of Cobra have no type of their own: any error before the verb has begun is an error of
		// the command line.
		var coded *exit.Error
		if !errors.As(err, &coded) {
			err = &exit.Error{Code: exit.Usage, Err: err}
		}
	}
	code := exit.Code(ctx, err)
	if !errors.Is(err, exit.ErrSaid) {
		fmt.Fprintf(s.err, "%s %s\n", a.errScreen().Paint(output.Bad, "tidemark:"), exit.Message(err))
	}
	if code == exit.Usage && !a.running && cmd != nil {
		fmt.Fprintf(s.err, "See '%s --help'.\n", cmd.CommandPath())
	}
	return code
}

// verb wraps a verb's code.
func (a *app) verb(
	do func(ctx context.Context, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := checkColor(a.color); err != nil {
			return err
		}
		if cmd.Flags().Lookup("output") != nil {
			format, err := output.ParseFormat(a.output)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			a.format = format
			if a.outTerminal && format == output.Raw {
				a.out = output.Terminal(a.out)
			}
		}
		if a.timeout < 0 {
			return exit.Usagef(
				"--timeout %s: give the time to try each request, or 0 for no limit", a.timeout)
		}
		a.running = true
		return do(cmd.Context(), args)
	}
}

// client adds the flags that every command has which talks to a cluster.
func (a *app) client(cmd *cobra.Command) *cobra.Command {
	flags := cmd.Flags()
	flags.StringSliceVar(&a.endpoints, "endpoints", nil,
		"addresses of servers, any of the cluster (default "+endpointsEnv+", or "+defaultEndpoint+")")
	flags.DurationVar(&a.timeout, "timeout", defaultTimeout,
		"how long to try each request; 0 is without limit")
	flags.StringVar(&a.user, "user", "",
		"authenticate as NAME, with the password in "+passwordEnv+", or as NAME:PASSWORD")
	flags.StringVar(&a.passwordFile, "password-file", "",
		"take the password of --user from this file; - is stdin")
	a.tls.Register(cmd)
	return cmd
}

// printing adds --output.
func (a *app) printing(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVarP(&a.output, "output", "o", string(output.Table),
		"table, json (numbers as numbers, times in seconds), tsv or raw")
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(output.Formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&a.headers, "headers", false, "with --output tsv: begin with a line of names")
	return cmd
}

// arguments checks the number of arguments: from least to most, or without an upper limit if most
// is negative.
func arguments(names string, least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		if names == "" {
			return exit.Usagef("%s takes no arguments, got %q", cmd.Name(), args)
		}
		return exit.Usagef("%s takes %s, got %s", cmd.Name(), names, plural(len(args), "argument"))
	}
}

// list begins a list for the results of a command.
func (a *app) list(columns ...output.Column) *output.List {
	return output.NewList(a.out, a.format, columns...).On(a.screen())
}

// say prints a message for people on stderr; messages are not part of the result.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.err, output.Plain(fmt.Sprintf(format, args...)))
}
