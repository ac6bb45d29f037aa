package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// never is the value of --ttl for values that do not expire.
const never = "never"

// ttlFlag is the time to live of the values that a command writes.
type ttlFlag struct{ text string }

func (f *ttlFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "ttl", "",
		"let it expire after so long, as in 90s or 24h; or never (default: the keyspace's)")
}

// parse returns the duration, which is 0 for never. given is false if the flag was not given.
func (f *ttlFlag) parse() (d time.Duration, given bool, err error) {
	switch f.text {
	case "":
		return 0, false, nil
	case never:
		return 0, true, nil
	}
	d, err = time.ParseDuration(f.text)
	if err != nil || d < kv.MinTTL || d > kv.MaxTTL {
		return 0, false, exit.Usagef("--ttl %q: give a duration from %s to %d days, as in 90s or 24h, "+
			"or never", f.text, kv.MinTTL, kv.MaxTTL/(24*time.Hour))
	}
	return d, true, nil
}

// options returns the option of the flag, if it was given.
func (f *ttlFlag) options() ([]kv.WriteOption, error) {
	d, given, err := f.parse()
	if err != nil || !given {
		return nil, err
	}
	return []kv.WriteOption{kv.TTL(d)}, nil
}

// defaultTTLFlag is the default time to live of a keyspace's values.
type defaultTTLFlag struct{ ttlFlag }

func (f *defaultTTLFlag) register(cmd *cobra.Command, usual string) {
	cmd.Flags().StringVar(&f.text, "ttl", "", "values that do not say so expire after so long, as "+
		"in 90s or 24h; or never (default: "+usual+")")
}

func (f *defaultTTLFlag) options() ([]kv.DefaultTTLOption, error) {
	d, given, err := f.parse()
	switch {
	case err != nil || !given:
		return nil, err
	case d%time.Millisecond != 0:
		return nil, exit.Usagef("--ttl %s: give whole milliseconds", f.text)
	}
	return []kv.DefaultTTLOption{kv.DefaultTTL(d)}, nil
}

var ttlColumns = []output.Column{{Name: "default ttl"}}

func ttlCells(info admin.KeyspaceInfo) []any {
	if info.DefaultTTL == 0 {
		return []any{nil}
	}
	return []any{info.DefaultTTL}
}

// expiryCell returns the cell of a value's expiry. It returns nil if the value does not expire.
func expiryCell(expires time.Time) any {
	if expires.IsZero() {
		return nil
	}
	return expires.UTC().Format(time.RFC3339Nano)
}
