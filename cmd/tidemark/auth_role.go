package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

func (a *app) authRoleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "role",
		Short: "Add and delete roles, and change their rights",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.authRoleAddCommand(), a.authRoleDeleteCommand(), a.authRoleListCommand(),
		a.authRoleShowCommand(), a.authRoleGrantCommand(), a.authRoleRevokeCommand())
	return cmd
}

func (a *app) authRoleAddCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "add ROLE",
		Short: "Add a role",
		Long:  `Add a role. A role has no rights until some are granted.`,
		Args:  arguments("ROLE", 1, 1),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		_, err := c.RoleAdd(ctx, args[0])
		return a.changed(err, "role", args[0])
	})
}

func (a *app) authRoleDeleteCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "delete ROLE",
		Short: "Delete a role, also from all users that have it",
		Args:  arguments("ROLE", 1, 1),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		_, err := c.RoleDelete(ctx, args[0])
		return a.changed(err, "role", args[0])
	})
}

func (a *app) authRoleListCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "list",
		Short: "List the roles",
		Args:  arguments("", 0, 0),
	}, false, func(ctx context.Context, c *clientv3.Client, _ []string) error {
		r, err := c.RoleList(ctx)
		if err != nil {
			return err
		}
		list := a.list(output.Column{Name: "role"})
		for _, name := range r.Roles {
			list.Row(name)
		}
		return list.Flush()
	})
}

func (a *app) authRoleShowCommand() *cobra.Command {
	cmd := a.authVerb(&cobra.Command{
		Use:     "show ROLE",
		Aliases: []string{"get"},
		Short:   "Show the rights of a role",
		Long: `Show the rights of a role: to a single key, or to all keys from KEY up to END, which
is not included; an END of one zero byte means no end. Rights without a keyspace are for the keys of
"tidemark coord". A keyspace without a name was dropped. A user can see its own roles.`,
		Args: arguments("ROLE", 1, 1),
	}, false, func(ctx context.Context, c *clientv3.Client, args []string) error {
		r, err := c.RoleGet(ctx, args[0])
		if err != nil {
			return err
		}
		keyspaces, err := permissionsOf(ctx, c, args[0])
		if err != nil {
			return err
		}
		list := a.list(output.Column{Name: "may"}, output.Column{Name: "key"},
			output.Column{Name: "end"}, output.Column{Name: "keyspace"},
			output.Column{Name: "keyspace id", Number: true})
		for _, p := range r.Perm {
			var end any
			if len(p.RangeEnd) > 0 {
				end = p.RangeEnd
			}
			list.Row(strings.ToLower(p.PermType.String()), notNil(p.Key), end, nil, nil)
		}
		for _, p := range keyspaces {
			var name any
			if p.Keys.Keyspace != "" {
				name = p.Keys.Keyspace
			}
			for _, may := range rightsShown(p.Rights) {
				key, end := shownRange(p.Keys)
				list.Row(may, key, end, name, p.Keys.KeyspaceId)
			}
		}
		return list.Flush()
	})
	return cmd
}

// permitted parses KEY [END] to the form of a permission.
func (r *keyRange) permitted(args []string) (key, end string, err error) {
	key, options, _, err := r.key(args)
	if err != nil {
		return "", "", err
	}
	op := clientv3.OpGet(key, options...)
	return string(op.KeyBytes()), string(op.RangeBytes()), nil
}

func (a *app) authRoleGrantCommand() *cobra.Command {
	r := grantedKeys{}
	cmd := a.authVerb(&cobra.Command{
		Use:   "grant ROLE read|write|readwrite|admin KEY [END]",
		Short: "Let a role read or write keys, or administer a keyspace",
		Long: `Let a role read or write a key; with END the keys from KEY up to END, which is not
included; with --prefix or --from-key other ranges. The new right replaces an earlier right for the
same keys. A write whose answer has the previous value needs the right to read as well.

With --keyspace the right is for keys of that keyspace, without KEY for all of them. There the new
right is added to earlier rights for the same keys. The right to administer is for a whole keyspace:
to alter and to drop it, to load into it, and to delete its consumers.`,
		Example: `  tidemark auth role grant app readwrite app/ --prefix
  tidemark auth role grant watcher read config/colour
  tidemark auth role grant app readwrite --keyspace orders
  tidemark auth role grant reports read 2026- --prefix --keyspace orders`,
		Args: arguments("ROLE, read, write, readwrite or admin, and KEY [END]", 2, 4),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		if r.keyspace != "" {
			rights, err := parseRights(args[1])
			if err != nil {
				return err
			}
			keys, err := r.keys(args[2:])
			if err != nil {
				return err
			}
			_, err = coordpb.NewPermissionsClient(c.ActiveConnection()).Grant(ctx,
				&coordpb.GrantRequest{Role: args[0], Keys: keys, Rights: rights})
			return a.changed(rpctypes.Error(err), "role", args[0])
		}
		if args[1] == "admin" {
			return exit.Usagef("admin is a right for keyspaces: give --keyspace")
		}
		may, err := clientv3.StrToPermissionType(args[1])
		if err != nil {
			return exit.Usagef("%q: a role may read, write or readwrite", args[1])
		}
		if len(args) < 3 {
			return exit.Usagef("give the KEY, or --keyspace")
		}
		key, end, err := r.permitted(args[2:])
		if err != nil {
			return err
		}
		_, err = c.RoleGrantPermission(ctx, args[0], key, end, may)
		return a.changed(err, "role", args[0])
	})
	r.register(cmd, a)
	return cmd
}

func (a *app) authRoleRevokeCommand() *cobra.Command {
	r, only := grantedKeys{}, ""
	cmd := a.authVerb(&cobra.Command{
		Use:   "revoke ROLE KEY [END]",
		Short: "Revoke a right of a role",
		Long: `Revoke a role's right for exactly these keys, as "tidemark auth role show" shows
them. With --keyspace the right is for keys of that keyspace, and without KEY the right for all its
keys; --keyspace-id names a keyspace that was dropped. Nodes that are cut off from the core follow
10 s later at the latest.`,
		Example: `  tidemark auth role revoke app app/ --prefix
  tidemark auth role revoke app --keyspace orders --only write`,
		Args: arguments("ROLE KEY [END]", 1, 3),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		if r.keyspace != "" || r.id != 0 {
			request := &coordpb.RevokeRequest{Role: args[0]}
			var err error
			if only != "" {
				if request.Rights, err = parseRights(only); err != nil {
					return err
				}
			}
			if request.Keys, err = r.keys(args[1:]); err != nil {
				return err
			}
			_, err = coordpb.NewPermissionsClient(c.ActiveConnection()).Revoke(ctx, request)
			return a.changed(rpctypes.Error(err), "role", args[0])
		}
		if only != "" || len(args) < 2 {
			return exit.Usagef("give the KEY, or --keyspace; --only is for keyspaces")
		}
		key, end, err := r.permitted(args[1:])
		if err != nil {
			return err
		}
		_, err = c.RoleRevokePermission(ctx, args[0], key, end)
		return a.changed(err, "role", args[0])
	})
	r.register(cmd, a)
	cmd.Flags().StringVar(&only, "only", "",
		"of a keyspace: take back this right (read, write, readwrite or admin), and leave the others")
	cmd.Flags().Uint64Var(&r.id, "keyspace-id", 0,
		"the id of the keyspace, if it has no name any more")
	return cmd
}
