package certs

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/authn"
)

// TestCertificates: what is made is taken by servers for what it is, and no file is written over.
func TestCertificates(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	servers, clients := PairOf(dir, "server-ca"), PairOf(dir, "client-ca")
	for _, ca := range []Pair{servers, clients} {
		if _, err := NewAuthority(ca, "a test", time.Hour, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewAuthority(servers, "another", time.Hour, now); err == nil {
		t.Error("an authority was written over")
	}
	server, client := PairOf(dir, "server"), PairOf(dir, "client")
	a, err := LoadAuthority(servers)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Server(server, []string{"127.0.0.1", "db.example"}, 24*time.Hour, now); err != nil {
		t.Fatal(err)
	}
	c, err := LoadAuthority(clients)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Client(client, "app", time.Hour, now); err != nil {
		t.Fatal(err)
	}
	files, err := authn.LoadTLSFiles(authn.TLSConfig{Cert: server.Cert, Key: server.Key,
		CA:     clients.Cert,
		PeerCA: servers.Cert})
	if err != nil {
		t.Fatal(err)
	}
	if !files.IdentifiesPeers() {
		t.Error("servers are not known")
	}
	if _, err := authn.LoadTLSFiles(authn.TLSConfig{Cert: client.Cert, Key: client.Key,
		CA:     clients.Cert,
		PeerCA: servers.Cert}); err == nil {
		t.Error("a client's certificate is taken for a server's")
	}
	block, err := readBlock(server.Cert, "CERTIFICATE")
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(block)
	if err != nil {
		t.Fatal(err)
	}
	if err := made.VerifyHostname("db.example"); err != nil {
		t.Error(err)
	}
	if made.NotAfter.After(now.Add(time.Hour + time.Second)) {
		t.Errorf("it is good until %s, longer than its authority", made.NotAfter)
	}
	for path, mode := range map[string]os.FileMode{server.Key: 0o600, servers.Key: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if _, err := LoadAuthority(PairOf(dir, "server")); err == nil {
		t.Error("a server's certificate is taken for an authority")
	}
	if _, err := LoadAuthority(PairOf(filepath.Join(dir, "none"), "ca")); err == nil {
		t.Error("an authority that is not there")
	}
}
