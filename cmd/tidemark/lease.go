package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

func (a *app) leaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "Grant, renew and revoke leases of the coordination service",
		Long: `Grant, renew and revoke leases of the coordination service. A key that was put with a
lease is deleted when the lease ends: when its time to live has passed without a renewal, or when it
is revoked.

Leases are named by hexadecimal numbers.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.leaseGrantCommand(), a.leaseRevokeCommand(), a.leaseKeepAliveCommand(),
		a.leaseTTLCommand(), a.leaseListCommand())
	return cmd
}

// withLease makes a command whose argument is a lease.
func (a *app) withLease(use, short, long string, f *coordFlags, write bool,
	do func(context.Context, *clientv3.Client, clientv3.LeaseID) error) *cobra.Command {
	return &cobra.Command{
		Use:   use + " LEASE",
		Short: short,
		Long:  long,
		Args:  arguments("LEASE", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			id, err := parseLease(args[0])
			if err != nil {
				return err
			}
			return a.withEtcd(ctx, f, write, func(ctx context.Context, c *clientv3.Client) error {
				err := do(ctx, c, id)
				if errors.Is(err, rpctypes.ErrLeaseNotFound) {
					return noSuchLease(id)
				}
				return err
			})
		}),
	}
}

func noSuchLease(id clientv3.LeaseID) error {
	return exit.NotFoundf("there is no lease %s; it is over, or never was", leaseText(id))
}

func (a *app) printLease(id clientv3.LeaseID, ttl int64) error {
	list := a.list(output.Column{Name: "lease", Whole: true}, output.Column{Name: "ttl"})
	list.Row(leaseText(id), time.Duration(ttl)*time.Second)
	return list.Flush()
}

func (a *app) leaseGrantCommand() *cobra.Command {
	var f coordFlags
	cmd := &cobra.Command{
		Use:   "grant TTL",
		Short: "Grant a lease",
		Long: `Grant a lease with a time to live, such as 30s or 5m, in whole seconds; a number
without a unit is in seconds. The service may lengthen a very short time to live. With --output raw
and tsv the time to live is in seconds.`,
		Example: `  tidemark lease grant 30s
  lease=$(tidemark lease grant 30s --output raw | cut -f 1)`,
		Args: arguments("TTL", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			text := args[0]
			if _, err := strconv.ParseUint(text, 10, 64); err == nil {
				text += "s"
			}
			ttl, err := time.ParseDuration(text)
			if err != nil || ttl < time.Second || ttl%time.Second != 0 {
				return exit.Usagef("%q is no time to live: give whole seconds, such as 30s or 5m", args[0])
			}
			return a.withEtcd(ctx, &f, true, func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.Grant(ctx, int64(ttl/time.Second))
				if err != nil {
					return madeAgain(err)
				}
				return a.printLease(r.ID, r.TTL)
			})
		}),
	}
	return a.printing(a.coordClient(cmd, &f))
}

func (a *app) leaseRevokeCommand() *cobra.Command {
	var f coordFlags
	cmd := a.withLease("revoke", "Revoke a lease", "Revoke a lease: all its keys are deleted.",
		&f, true,
		func(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) error {
			r, err := c.Revoke(ctx, id)
			if err != nil {
				return madeAgain(err)
			}
			list := a.list(output.Column{Name: "lease", Whole: true},
				output.Column{Name: "revision", Number: true})
			list.Row(leaseText(id), r.Header.Revision)
			return list.Flush()
		})
	return a.printing(a.coordClient(cmd, &f))
}

func (a *app) leaseTTLCommand() *cobra.Command {
	var f coordFlags
	var keys bool
	cmd := a.withLease("ttl", "Show for how long a lease lives",
		"Show for how long a lease still lives, what it was granted, and with --keys its keys.",
		&f, false,
		func(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) error {
			var options []clientv3.LeaseOption
			if keys {
				options = append(options, clientv3.WithAttachedKeys())
			}
			r, err := c.TimeToLive(ctx, id, options...)
			if err != nil {
				return err
			}
			if r.TTL < 0 {
				return noSuchLease(id)
			}
			columns := []output.Column{{Name: "lease", Whole: true}, {Name: "ttl"}, {Name: "granted"}}
			cells := []any{leaseText(id), time.Duration(r.TTL) * time.Second,
				time.Duration(r.GrantedTTL) * time.Second}
			if keys {
				names := make([]string, 0, len(r.Keys))
				for _, key := range r.Keys {
					names = append(names, string(key))
				}
				columns, cells = append(columns, output.Column{Name: "keys"}), append(cells, names)
			}
			list := a.list(columns...)
			list.Row(cells...)
			return list.Flush()
		})
	cmd.Flags().BoolVar(&keys, "keys", false, "show the keys too")
	return a.printing(a.coordClient(cmd, &f))
}

func (a *app) leaseListCommand() *cobra.Command {
	var f coordFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all leases",
		Long:  `List the leases of the coordination service.`,
		Args:  arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withEtcd(ctx, &f, false, func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.Leases(ctx)
				if err != nil {
					return err
				}
				list := a.list(output.Column{Name: "lease", Whole: true})
				for _, lease := range r.Leases {
					list.Row(leaseText(lease.ID))
				}
				return list.Flush()
			})
		}),
	}
	return a.printing(a.coordClient(cmd, &f))
}

func (a *app) leaseKeepAliveCommand() *cobra.Command {
	var f coordFlags
	var once bool
	cmd := &cobra.Command{
		Use:   "keep-alive LEASE",
		Short: "Renew a lease again and again",
		Long: `Renew a lease every third of its time to live, until the command is interrupted; the
lease then lives for one more time to live. With --once the lease is renewed once. The command
prints each renewal. If the lease has ended, the exit code is 3.`,
		Example: `  tidemark lease keep-alive 694d81417acd4c15`,
		Args:    arguments("LEASE", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			id, err := parseLease(args[0])
			if err != nil {
				return err
			}
			return a.withCoord(ctx, &f, func(client *coord.Client) error {
				if !once {
					a.say("tidemark: renewing the lease %s", leaseText(id))
				}
				return a.keepAlive(ctx, client.Etcd(), id, once)
			})
		}),
	}
	cmd.Flags().BoolVar(&once, "once", false, "renew it once")
	return a.printing(a.coordClient(cmd, &f))
}

func (a *app) keepAlive(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID,
	once bool) error {
	for {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if a.timeout > 0 {
			limited, cancel = context.WithTimeout(ctx, a.timeout)
		}
		ttl, err := renewLease(limited, c, id)
		cancel()
		switch {
		case err == nil && ttl <= 0, errors.Is(err, rpctypes.ErrLeaseNotFound):
			return noSuchLease(id)
		case err != nil && ctx.Err() != nil && !once:
			return nil
		case err != nil:
			return fmt.Errorf("the lease %s was not renewed: %w", leaseText(id), err)
		}
		if err := a.printLease(id, ttl); err != nil || once {
			return err
		}
		if backoff.Sleep(ctx, time.Duration(ttl)*time.Second/3) != nil {
			return nil // this is the normal end
		}
	}
}

// renewLease renews a lease, and returns its time to live in seconds. It returns 0 if the lease has
// ended. It retries while no server answers.
func renewLease(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) (int64, error) {
	for {
		ttl, err := renewAt(ctx, c, id)
		if err == nil || codeOf(err) != codes.Unavailable {
			return ttl, err
		}
		if ended := backoff.Sleep(ctx, 200*time.Millisecond); ended != nil {
			return 0, errors.Join(ended, err)
		}
	}
}

// renewAt asks one server.
func renewAt(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, rpctypes.Error(err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return 0, rpctypes.Error(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		return 0, rpctypes.Error(err)
	}
	return answer.TTL, nil
}
