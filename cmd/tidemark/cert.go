package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/deploy/certs"
	"github.com/tidemarkdb/tidemark/deploy/embedded/clustersecret"
)

// secretCommand makes the secret by which servers authenticate each other without TLS.
func (a *app) secretCommand() *cobra.Command {
	return a.printing(&cobra.Command{
		Use:   "secret",
		Short: "Make a cluster secret",
		Long: `Print a new cluster secret, by which the servers of a cluster know each other without
TLS. Give a file with it to every server: tidemark start --secret-file FILE. Keep the file from
others.`,
		Example: `  (umask 077; tidemark secret > cluster.secret)`,
		Args:    arguments("", 0, 0),
		RunE: a.verb(func(context.Context, []string) error {
			secret := strings.TrimSpace(clustersecret.New())
			if a.format == output.Table {
				_, err := fmt.Fprintln(a.out, secret) // the output is the content of a file
				return err
			}
			list := a.list(output.Column{Name: "secret"})
			list.Row(secret)
			return list.Flush()
		}),
	})
}

// The names of the authorities' files.
const (
	serverAuthority = "server-ca"
	clientAuthority = "client-ca"
)

// authorityValid is the validity of a new authority.
const authorityValid = 10 * 365 * 24 * time.Hour

func (a *app) certCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make certificates, to try TLS or for a small cluster",
		Long: `Make certificate authorities and certificates: one authority for servers and one for
clients, so that no client can speak as a server.

  tidemark cert ca                           # once
  tidemark cert server 10.0.0.1 db1.example  # for each server: the hosts it is reached by
  tidemark cert client app                   # for each client

  tidemark start --tls-cert certs/10.0.0.1.crt --tls-key certs/10.0.0.1.key \
    --tls-ca certs/client-ca.crt --tls-peer-ca certs/server-ca.crt ...
  tidemark status --tls-ca certs/server-ca.crt --tls-cert certs/app.crt --tls-key certs/app.key

The keys of the authorities, server-ca.key and client-ca.key, are needed on no server: keep them
somewhere safe.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.certAuthorityCommand(), a.certServerCommand(), a.certClientCommand())
	return cmd
}

type certFlags struct {
	dir, name string
	days      int
}

func (f *certFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "certs", "directory of the files; made if it does not exist")
	flags.StringVar(&f.name, "name", "", "name of the files (default: the first argument)")
	flags.IntVar(&f.days, "days", 365, "for how many days the certificate is good")
	_ = cmd.MarkFlagDirname("dir")
}

// files returns the file names of the new certificate.
func (f *certFlags) files(name string) (certs.Pair, error) {
	if f.days < 1 || f.days > 100*365 {
		return certs.Pair{}, exit.Usagef("--days %d: use 1 to 36500", f.days)
	}
	if f.name != "" {
		name = f.name
	}
	if name == serverAuthority || name == clientAuthority || name == "" || name == "." ||
		name == ".." || containsSeparator(name) {
		return certs.Pair{}, exit.Usagef("%q cannot be the name of a certificate's files: give --name",
			name)
	}
	return certs.PairOf(f.dir, name), nil
}

func (f *certFlags) valid() time.Duration { return time.Duration(f.days) * 24 * time.Hour }

func containsSeparator(name string) bool {
	for _, r := range name {
		if r == '/' || r == '\\' || r < ' ' {
			return true
		}
	}
	return false
}

func (a *app) certAuthorityCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Make the authorities of servers and of clients",
		Args:  arguments("", 0, 0),
		RunE: a.verb(func(context.Context, []string) error {
			list := a.listOfCertificates()
			for _, of := range []struct{ file, name string }{
				{serverAuthority, "Tidemark servers"}, {clientAuthority, "Tidemark clients"}} {
				files := certs.PairOf(dir, of.file)
				if _, err := certs.NewAuthority(files, of.name, authorityValid, time.Now()); err != nil {
					return err
				}
				list.Row(files.Cert, files.Key, uint64(authorityValid/(24*time.Hour)))
			}
			return list.Flush()
		}),
	}
	cmd.Flags().StringVar(&dir, "dir", "certs",
		"directory of the files; made if it does not exist")
	_ = cmd.MarkFlagDirname("dir")
	return a.printing(cmd)
}

func (a *app) certServerCommand() *cobra.Command {
	var f certFlags
	cmd := &cobra.Command{
		Use:     "server HOST...",
		Short:   "Make a server's certificate: HOST is a name or address by which it is reached",
		Example: `  tidemark cert server 10.0.0.1 db1.example localhost`,
		Args:    arguments("HOST...", 1, -1),
		RunE: a.verb(func(_ context.Context, hosts []string) error {
			return a.makeCertificate(&f, serverAuthority, hosts[0],
				func(of *certs.Authority, files certs.Pair) error {
					return of.Server(files, hosts, f.valid(), time.Now())
				})
		}),
	}
	f.register(cmd)
	return a.printing(cmd)
}

func (a *app) certClientCommand() *cobra.Command {
	var f certFlags
	cmd := &cobra.Command{
		Use:     "client NAME",
		Short:   "Make a client's certificate",
		Example: `  tidemark cert client app`,
		Args:    arguments("NAME", 1, 1),
		RunE: a.verb(func(_ context.Context, args []string) error {
			return a.makeCertificate(&f, clientAuthority, args[0],
				func(of *certs.Authority, files certs.Pair) error {
					return of.Client(files, args[0], f.valid(), time.Now())
				})
		}),
	}
	f.register(cmd)
	return a.printing(cmd)
}

// makeCertificate makes a certificate that an authority signs.
func (a *app) makeCertificate(f *certFlags, authority, name string,
	sign func(*certs.Authority, certs.Pair) error) error {
	files, err := f.files(name)
	if err != nil {
		return err
	}
	of, err := certs.LoadAuthority(certs.PairOf(f.dir, authority))
	if errors.Is(err, fs.ErrNotExist) {
		return exit.Usagef("there is no authority in %s yet: tidemark cert ca --dir %s makes it", f.dir,
			shellQuote(f.dir))
	}
	if err != nil {
		return err
	}
	if err := sign(of, files); err != nil {
		return err
	}
	list := a.listOfCertificates()
	list.Row(files.Cert, files.Key, uint64(f.days))
	return list.Flush()
}

// listOfCertificates begins a list of new files.
func (a *app) listOfCertificates() *output.List {
	return a.list(output.Column{Name: "certificate"}, output.Column{Name: "key"},
		output.Column{Name: "days", Number: true})
}
