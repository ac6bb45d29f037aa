package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

// freshFlags are the flags of reads that any replica may answer, with the largest age of the
// result.
type freshFlags struct {
	nearest, any, linearizable bool
	staleness                  time.Duration
	given                      func(flag string) bool
	// read is the information that the read returned about itself.
	read kv.ReadInfo
}

// register adds the flags to a command.
func (f *freshFlags) register(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.nearest, "nearest", false,
		"let the nearest replica answer, from a state about a second old")
	flags.DurationVar(&f.staleness, "staleness", 0,
		"let the nearest replica answer that is no older than that, such as 5s")
	flags.BoolVar(&f.any, "any-staleness", false,
		"let the nearest replica answer, however old its state is")
	const linearizable = "linearizable-follower"
	flags.BoolVar(&f.linearizable, linearizable, false,
		"let the nearest replica answer, with the latest; the leader is asked first")
	a.localityFlag(cmd)
	for _, other := range []string{"nearest", "staleness", "any-staleness"} {
		cmd.MarkFlagsMutuallyExclusive(linearizable, other)
	}
	cmd.MarkFlagsMutuallyExclusive("staleness", "any-staleness")
	if flags.Lookup("at") != nil {
		cmd.MarkFlagsMutuallyExclusive("at", "staleness")
		cmd.MarkFlagsMutuallyExclusive("at", "any-staleness")
		cmd.MarkFlagsMutuallyExclusive("at", linearizable)
	}
	f.given = flags.Changed
}

// localityFlag adds --locality.
func (a *app) localityFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.locality, "locality", "",
		"where this program runs, for what is near: region=NAME,zone=NAME")
}

// used reports whether any replica may answer.
func (f *freshFlags) used() bool {
	return f.nearest || f.any || f.linearizable || f.bounded()
}

// bounded reports whether --staleness was given.
func (f *freshFlags) bounded() bool { return f.given != nil && f.given("staleness") }

// freshOption is an option of any read.
type freshOption interface {
	kv.GetOption
	kv.CountOption
	kv.ScanOption
}

// options returns the read's options, including the one that fills read. It returns none if the
// flags are not used.
func (f *freshFlags) options() (options []freshOption, err error) {
	options, err = f.choice()
	if len(options) > 0 {
		options = append(options, kv.ReadAt(&f.read))
	}
	return options, err
}

// choice returns the options by which any replica may answer. It returns none if the flags are not
// used.
func (f *freshFlags) choice() (options []freshOption, err error) {
	if f.nearest {
		options = append(options, kv.Nearest())
	}
	if f.linearizable {
		options = append(options, kv.LinearizableFollower())
	}
	if f.any {
		options = append(options, kv.AnyStaleness())
	}
	if f.bounded() {
		if f.staleness <= 0 {
			return nil, exit.Usagef("--staleness %s: give a time above 0, such as 5s", f.staleness)
		}
		options = append(options, kv.MaxStaleness(f.staleness))
	}
	return options, nil
}

// columns returns the columns that describe the read, for programs.
func (f *freshFlags) columns() []output.Column {
	if f == nil || !f.used() {
		return nil
	}
	return []output.Column{{Name: "read_at", Programs: true}, {Name: "age", Programs: true}}
}

// cells returns the cells of the columns.
func (f *freshFlags) cells() []any {
	switch {
	case f == nil || !f.used():
		return nil
	case f.read.Age < 0:
		return []any{f.read.At, nil}
	}
	return []any{f.read.At, f.read.Age}
}

// tell prints the timestamp of the read, for people.
func (a *app) tell(f *freshFlags) {
	switch {
	case !f.used() || f.read.At.IsZero():
	case f.read.Age < 0:
		a.say("read at %s", f.read.At)
	default:
		a.say("read at %s, at most %s old", f.read.At, f.read.Age.Round(time.Millisecond))
	}
}
