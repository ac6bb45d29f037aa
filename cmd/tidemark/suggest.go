package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// closest returns the name that the user probably meant by a word: a name that begins with the
// word, or that differs in one or two letters. It returns "" if there is no such name, or if
// several names are equally close.
func closest(word string, names []string) string {
	best, found, tie := 1+len(word)/3, "", false
	for _, name := range names {
		distance := slips(strings.ToLower(word), strings.ToLower(name))
		if len(word) >= 3 && strings.HasPrefix(name, word) {
			distance = min(distance, 1)
		}
		switch {
		case distance > best || name == word:
		case distance < best || found == "":
			best, found, tie = distance, name, false
		case name != found:
			tie = true
		}
	}
	if tie {
		return ""
	}
	return found
}

// slips counts the letters that were left out, added, replaced, or swapped with their neighbour.
func slips(a, b string) int {
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}

// didYouMean returns the end of an error about a word that is not one of the names.
func didYouMean(word string, names []string) string {
	if name := closest(word, names); name != "" {
		return fmt.Sprintf("; did you mean %q?", name)
	}
	return ""
}

// onlyCommands is for a command that has only subcommands.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if here := foreignCommand(cmd.CommandPath(), args[0]); here != "" {
		return exit.Usagef("unknown command %q for %q; did you mean %s?", args[0], cmd.CommandPath(),
			here)
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, append(sub.Aliases, sub.Name())...)
		}
	}
	return exit.Usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(),
		didYouMean(args[0], names))
}

// keyspaceMeant adds a suggested name to an error about an unknown keyspace.
func keyspaceMeant(ctx context.Context, client *kv.Client, err error) error {
	var e *kv.Error
	var said *meantError
	if errors.As(err, &said) {
		return err
	}
	if !errors.Is(err, kv.ErrKeyspaceNotFound) || !errors.As(err, &e) || e.Keyspace == "" {
		return err
	}
	if meant := closest(e.Keyspace, keyspaceNames(ctx, client)); meant != "" {
		return &meantError{fmt.Errorf("%w; did you mean %q?", err, meant)}
	}
	return err
}

// meantError is an error that has a suggestion already.
type meantError struct{ error }

func (e *meantError) Unwrap() error { return e.error }

// keyspaceNames returns the names of the keyspaces, if the cluster answers soon.
func keyspaceNames(ctx context.Context, client *kv.Client) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	keyspaces, err := admin.New(client).Keyspaces(ctx)
	if err != nil {
		return nil
	}
	for _, keyspace := range keyspaces {
		names = append(names, keyspace.Name)
	}
	return names
}

// flagMeant rewords an error about a flag.
func flagMeant(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		// The flag belongs to the misspelt command.
		if unknown := onlyCommands(cmd, args); unknown != nil {
			return unknown
		}
	}
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		return exit.Usagef("--%s %s: %s", bad.GetFlag().Name, bad.GetValue(),
			valueWanted(bad.GetFlag().Value.Type(), err))
	}
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	meant := foreignFlag(name, names)
	if meant == "" {
		meant = closest(name, names)
	}
	if meant != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, meant)
	}
	return err
}

// valueWanted describes the values that a flag of a type accepts.
func valueWanted(kind string, err error) string {
	switch {
	case kind == "duration":
		return "give a time with its unit, for instance 500ms, 30s or 1h"
	case kind == "bool":
		return "give true or false"
	case errors.Is(err, strconv.ErrRange):
		return "the number is too large"
	case strings.HasPrefix(kind, "float"):
		return "give a number"
	case strings.HasPrefix(kind, "uint"):
		return "give a whole number that is not negative"
	case strings.HasPrefix(kind, "int"):
		return "give a whole number"
	}
	return errors.Unwrap(err).Error()
}
