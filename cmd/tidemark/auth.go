package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

func (a *app) authCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auth",
		Short: "Administer users, roles and rights",
		Long: `Administer users, roles, and their rights to the keys of the coordination service and
of keyspaces, and enable or disable authentication.

To begin:

  tidemark auth user add root --new-password-file root.password
  tidemark auth user grant root root
  tidemark auth enable

From then on every command that reaches data needs --user, and administration needs a user with the
role root. The commands use the etcd v3 API; etcdctl works as well, but not for rights to
keyspaces.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.authStatusCommand(), a.authEnableCommand(), a.authDisableCommand(),
		a.authLoginCommand(), a.authUserCommand(), a.authRoleCommand())
	return cmd
}

// authVerb makes a command that administers users and roles with a client. do gets the arguments.
func (a *app) authVerb(cmd *cobra.Command, write bool,
	do func(context.Context, *clientv3.Client, []string) error) *cobra.Command {
	f := &coordFlags{}
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error {
		return a.withEtcd(ctx, f, write, func(ctx context.Context, c *clientv3.Client) error {
			return authFailed(do(ctx, c, args))
		})
	})
	return a.printing(a.coordClient(cmd, f))
}

// changed prints the object of a change, if the change succeeded.
func (a *app) changed(err error, kind, name string) error {
	if err != nil {
		return err
	}
	list := a.list(output.Column{Name: "changed"}, output.Column{Name: "name"})
	list.Row(kind, name)
	return list.Flush()
}

// authFailed adds advice to errors of users and roles.
func authFailed(err error) error {
	for _, of := range []struct {
		err  error
		code int
		text string
	}{
		{rpctypes.ErrUserAlreadyExist, exit.Conflict, "there is a user of that name already"},
		{rpctypes.ErrRoleAlreadyExist, exit.Conflict, "there is a role of that name already"},
		{rpctypes.ErrUserNotFound, exit.NotFound, "there is no user of that name"},
		{rpctypes.ErrRoleNotFound, exit.NotFound, "there is no role of that name"},
		{rpctypes.ErrRoleNotGranted, exit.NotFound, "the user does not have that role"},
		{rpctypes.ErrPermissionNotGranted, exit.NotFound,
			"the role has no permission for exactly these keys; see \"tidemark auth role show\""},
		{rpctypes.ErrRootUserNotExist, exit.Usage,
			"there is no user root yet: \"tidemark auth user add root\""},
		{rpctypes.ErrRootRoleNotExist, exit.Usage,
			"the user root does not have the role root yet: \"tidemark auth user grant root root\""},
		{rpctypes.ErrInvalidAuthMgmt, exit.Usage, "while authentication is enabled the user root has " +
			"to keep its role root; and a range of keys ends above its first key"},
	} {
		if errors.Is(err, of.err) {
			return &exit.Error{Code: of.code, Err: said{of.text, err}}
		}
	}
	return err
}

func (a *app) authStatusCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "status",
		Short: "Show whether authentication is enabled",
		Long: `Show whether authentication is enabled, and the revision of users and roles, which counts
their changes.`,
		Args: arguments("", 0, 0),
	}, false, func(ctx context.Context, c *clientv3.Client, _ []string) error {
		r, err := c.AuthStatus(ctx)
		if err != nil {
			return err
		}
		list := a.list(output.Column{Name: "enabled"}, output.Column{Name: "revision", Number: true})
		list.Row(r.Enabled, r.AuthRevision)
		return list.Flush()
	})
}

func (a *app) authEnableCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "enable",
		Short: "Enable authentication",
		Long: `Enable authentication: users and roles count from now on. The user root must exist,
and must have the role root. Clients without a user cannot do anything any more.

All servers must run, because each must follow users and roles from now on. All servers must be able
to prove that they are servers of the cluster: by certificates (--tls-ca, --tls-peer-ca) or the
cluster secret (--secret-file), unless they listen on this machine only. Otherwise nothing is
enabled, and the error names the servers that prevent it.`,
		Args: arguments("", 0, 0),
	}, true, func(ctx context.Context, c *clientv3.Client, _ []string) error {
		_, err := c.AuthEnable(ctx)
		return a.changed(err, "authentication", "enabled")
	})
}

func (a *app) authDisableCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "disable",
		Short: "Disable authentication",
		Long: `Disable authentication: every client may do everything again. Users and roles stay;
all tokens end. This needs a user with the role root.`,
		Example: `  tidemark auth disable --user root --password-file root.password`,
		Args:    arguments("", 0, 0),
	}, true, func(ctx context.Context, c *clientv3.Client, _ []string) error {
		_, err := c.AuthDisable(ctx)
		return a.changed(err, "authentication", "disabled")
	})
}

func (a *app) authLoginCommand() *cobra.Command {
	f := &coordFlags{}
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Check the password of --user, and print a token",
		Long: `Check the password of --user, and print a token. Programs send the token as "token"
in the metadata of their calls. A token is valid for 5 minutes, and for another 5 minutes after each
use. Whoever has the token can do what the user can.`,
		Example: `  tidemark auth login --user app --password-file app.password`,
		Args:    arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			name, password, err := a.credentials()
			if err != nil {
				return err
			}
			if name == "" {
				return exit.Usagef("login: give --user")
			}
			a.user, a.passwordFile = name+":"+password, "" // standard input can be read only once
			return a.withEtcd(ctx, f, false, func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.Authenticate(ctx, name, password)
				if err != nil {
					return err
				}
				list := a.list(output.Column{Name: "token", Whole: true})
				list.Row(r.Token)
				return list.Flush()
			})
		}),
	}
	return a.printing(a.coordClient(cmd, f))
}
