package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagMeant says in the words of the command line what is wrong with a flag.
func flagMeant(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		// The flag is of the command that was misspelt.
		if unknown := onlyCommands(cmd, args); unknown != nil {
			return unknown
		}
	}
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		return usagef("--%s %s: %s", bad.GetFlag().Name, bad.GetValue(), valueWanted(bad.GetFlag().Value.Type(), err))
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
	if meant := closest(name, names); meant != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, meant)
	}
	return err
}

// valueWanted says what a flag of a type takes.
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
