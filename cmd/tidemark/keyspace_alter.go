package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// limitFlags are the limits of transactions that a keyspace has.
type limitFlags struct {
	age, idle time.Duration
	flags     *pflag.FlagSet
}

// minLimit and maxLimit are the limits of these flags.
const minLimit, maxLimit = time.Second, 168 * time.Hour

// register adds the flags. age and idle are texts for the defaults.
func (f *limitFlags) register(cmd *cobra.Command, age, idle string) {
	flags := cmd.Flags()
	f.flags = flags
	flags.DurationVar(&f.age, "txn-max-age", 0,
		"how long after it began a transaction may hold locks, 1s to 168h (default: "+age+")")
	flags.DurationVar(&f.idle, "txn-max-idle", 0,
		"for how long its application may make no call meanwhile, 1s to 168h (default: "+idle+")")
}

// options returns the options of the given flags.
func (f *limitFlags) options() (options []kv.LimitOption, err error) {
	for _, limit := range []struct {
		flag   string
		d      time.Duration
		option func(time.Duration) kv.LimitOption
	}{
		{"txn-max-age", f.age, kv.MaxTransactionAge},
		{"txn-max-idle", f.idle, kv.MaxTransactionIdle},
	} {
		switch {
		case !f.flags.Changed(limit.flag):
			continue
		case limit.d < minLimit || limit.d > maxLimit:
			return nil, exit.Usagef("--%s %s: it is from 1s to 168h", limit.flag, limit.d)
		case limit.d%time.Millisecond != 0:
			return nil, exit.Usagef("--%s %s: give whole milliseconds", limit.flag, limit.d)
		}
		options = append(options, limit.option(limit.d))
	}
	return options, nil
}

// lagFlag is the lag behind the present at which any replica can be read.
type lagFlag struct {
	lag   time.Duration
	flags *pflag.FlagSet
}

// register adds the flag. lag is a text for the default.
func (f *lagFlag) register(cmd *cobra.Command, lag string) {
	f.flags = cmd.Flags()
	f.flags.DurationVar(&f.lag, "closed-lag", 0,
		"how far behind the present any replica can be read, 50ms to 1h (default: "+lag+")")
}

// options returns the option of the flag, if it was given.
func (f *lagFlag) options() ([]kv.ClosedLagOption, error) {
	switch {
	case !f.flags.Changed("closed-lag"):
		return nil, nil
	case f.lag < 50*time.Millisecond || f.lag > time.Hour || f.lag%time.Millisecond != 0:
		return nil, exit.Usagef("--closed-lag %s: give whole milliseconds, from 50ms to 1h", f.lag)
	}
	return []kv.ClosedLagOption{kv.ClosedLag(f.lag)}, nil
}

// windowFlag is the time for which the past can be read.
type windowFlag struct {
	window time.Duration
	flags  *pflag.FlagSet
}

// register adds the flag. window is a text for the default.
func (f *windowFlag) register(cmd *cobra.Command, window string) {
	f.flags = cmd.Flags()
	f.flags.DurationVar(&f.window, "gc-window", 0,
		"for how long the past can be read (default: "+window+")")
}

// options returns the option of the flag, if it was given.
func (f *windowFlag) options() ([]kv.GCWindowOption, error) {
	switch {
	case !f.flags.Changed("gc-window"):
		return nil, nil
	case f.window < time.Second || f.window%time.Second != 0:
		return nil, exit.Usagef("--gc-window %s: give whole seconds, at least one", f.window)
	}
	return []kv.GCWindowOption{kv.GCWindow(f.window)}, nil
}

// placeFlags say how many replicas a keyspace has, and where.
type placeFlags struct {
	replicas       int
	place, leaders string
	flags          *pflag.FlagSet
}

// register adds the flags. replicas is a text for the default number of replicas.
func (f *placeFlags) register(cmd *cobra.Command, replicas string) {
	f.flags = cmd.Flags()
	f.flags.IntVar(&f.replicas, "replicas", 0,
		"copies of each partition: 1, 3 or 5 (default: "+replicas+")")
	f.flags.StringVar(&f.place, "place", "", "where they have to be, by region, zone or tag of "+
		"nodes: region=eu:2,region=us:1, or disk=ssd for all (empty: anywhere)")
	f.flags.StringVar(&f.leaders, "leaders", "",
		"where leaders should be, as in region=eu (empty: anywhere)")
}

// options returns the options of the given flags.
func (f *placeFlags) options() (options []kv.PlacementOption, err error) {
	if f.flags.Changed("replicas") {
		if f.replicas != 1 && f.replicas != 3 && f.replicas != 5 {
			return nil, exit.Usagef("--replicas %d: a keyspace has 1, 3 or 5", f.replicas)
		}
		options = append(options, kv.Replicas(f.replicas))
	}
	if f.flags.Changed("place") {
		options = append(options, kv.PlaceReplicas(f.place))
	}
	if f.flags.Changed("leaders") {
		options = append(options, kv.PreferLeaders(f.leaders))
	}
	return options, nil
}

var placeColumns = []output.Column{{Name: "place"}, {Name: "leaders"}}

func placeCells(info admin.KeyspaceInfo) []any {
	return []any{orNone(info.Placement), orNone(info.Leaders)}
}

var limitColumns = []output.Column{{Name: "closed lag"}, {Name: "txn max age"},
	{Name: "txn max idle"}}

func limitCells(info admin.KeyspaceInfo) []any {
	return []any{info.ClosedLag, info.MaxTransactionAge, info.MaxTransactionIdle}
}

func (a *app) keyspaceAlterCommand() *cobra.Command {
	var f limitFlags
	var place placeFlags
	var sizes sizeFlags
	var ttl defaultTTLFlag
	var encoding argument.Encoding
	var splitAt []string
	var lag lagFlag
	var window windowFlag
	var quotas quotaFlags
	cmd := &cobra.Command{
		Use:   "alter NAME",
		Short: "Change the replicas of a keyspace, its partitions, limits, quotas and default expiry",
		Long: `Change the number and the place of a keyspace's replicas, the size of its partitions,
the time for which the past can be read, the time for which transactions may hold its locks, and
the default time to live of its values.
Settings that are not given stay unchanged.

--split-at splits at each given key, and waits for each split, as "tidemark split --wait" does.

Replicas are added, moved and removed afterwards, while the keyspace is used: "tidemark why NAME"
shows the progress.

--ttl counts for later writes; existing values keep their expiry. A longer --gc-window brings
nothing back that is already removed.

Limits also count for open transactions, as soon as the nodes have learned of the limits, which
takes a moment. Changed quotas count as soon; 0 removes a quota.`,
		Example: `  tidemark keyspace alter fruit --replicas 5
  tidemark keyspace alter fruit --place region=eu:2,region=us:1 --leaders region=eu
  tidemark keyspace alter fruit --split-size 64MiB --merge-size 8MiB
  tidemark keyspace alter fruit --split-at g --split-at p
  tidemark keyspace alter fruit --txn-max-idle 30s
  tidemark keyspace alter sessions --ttl 48h
  tidemark keyspace alter orders --quota-requests 2000 --quota-throughput 10MiB`,
		Args:              arguments("NAME", 1, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			limits, err := f.options()
			if err != nil {
				return err
			}
			placing, err := place.options()
			if err != nil {
				return err
			}
			var changes []kv.AlterOption
			for _, limit := range limits {
				changes = append(changes, limit)
			}
			for _, option := range placing {
				changes = append(changes, option)
			}
			for _, size := range sizes.options() {
				changes = append(changes, size)
			}
			closed, err := lag.options()
			if err != nil {
				return err
			}
			for _, option := range closed {
				changes = append(changes, option)
			}
			windows, err := window.options()
			if err != nil {
				return err
			}
			for _, option := range windows {
				changes = append(changes, option)
			}
			lives, err := ttl.options()
			if err != nil {
				return err
			}
			for _, option := range lives {
				changes = append(changes, option)
			}
			limited, err := quotas.options()
			if err != nil {
				return err
			}
			for _, option := range limited {
				changes = append(changes, option)
			}
			var at [][]byte
			for _, text := range splitAt {
				key, err := encoding.DecodeKey(text)
				if err != nil {
					return err
				}
				at = append(at, key)
			}
			if len(changes)+len(at) == 0 {
				return exit.Usagef("say what to change: --replicas, --place, --leaders, --split-size, " +
					"--merge-size, --no-auto, --split-at, --gc-window, --closed-lag, --txn-max-age, --txn-max-idle, " +
					"--ttl, --quota-bytes, --quota-requests, --quota-throughput")
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				if len(changes) > 0 {
					if err := client.AlterKeyspace(ctx, args[0], changes...); err != nil {
						return err
					}
				}
				if err := a.splitAll(ctx, client, args[0], at); err != nil {
					return err
				}
				return a.describeKeyspace(ctx, client, args[0])
			})
		}),
	}
	place.register(cmd, "it stays")
	f.register(cmd, "it stays", "it stays")
	sizes.register(cmd, "it stays", "it stays")
	window.register(cmd, "it stays")
	lag.register(cmd, "it stays")
	ttl.register(cmd, "it stays")
	quotas.register(cmd, "it stays")
	cmd.Flags().StringArrayVar(&splitAt, "split-at", nil,
		"a key that begins a partition from now on; once for each")
	encoding.Register(cmd)
	return a.client(a.printing(cmd))
}
