package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/certs"
	"github.com/tidemarkdb/tidemark/deploy/embedded/clustersecret"
)

// files has the certificates and secrets of servers and clients.
type files struct {
	secret             string
	serverCA, clientCA certs.Pair
	server, client     certs.Pair
}

// makeFiles makes the files in a directory.
func makeFiles(dir string) (f files, err error) {
	f = files{secret: filepath.Join(dir, "cluster.secret"),
		serverCA: certs.PairOf(dir, "server-ca"), clientCA: certs.PairOf(dir, "client-ca"),
		server: certs.PairOf(dir, "server"), client: certs.PairOf(dir, "client")}
	if err := os.WriteFile(f.secret, []byte(clustersecret.New()), 0o600); err != nil {
		return f, err
	}
	const valid = 24 * time.Hour
	now := time.Now()
	servers, err := certs.NewAuthority(f.serverCA, "servers", valid, now)
	if err != nil {
		return f, err
	}
	clients, err := certs.NewAuthority(f.clientCA, "clients", valid, now)
	if err != nil {
		return f, err
	}
	if err := servers.Server(f.server, []string{"127.0.0.1"}, valid, now); err != nil {
		return f, err
	}
	return f, clients.Client(f.client, "honest or not", valid, now)
}
