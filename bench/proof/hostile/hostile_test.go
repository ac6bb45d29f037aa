package main

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/hostile/abuse"
	"github.com/tidemarkdb/tidemark/bench/proof/hostile/honest"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/authn"
)

// TestHostile plays each act for a moment against three servers in this process, so that the test
// notices a panic. Honest clients get answers, and every acknowledged write is there after a
// restart.
func TestHostile(t *testing.T) {
	for _, secure := range []bool{false, true} {
		name := "plain"
		if secure {
			name = "TLS"
		}
		t.Run(name, func(t *testing.T) { hostile(t, secure) })
	}
}

func hostile(t *testing.T, secure bool) {
	dir := t.TempDir()
	files, err := makeFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	endpoints, err := process.FreeAddresses(3)
	if err != nil {
		t.Fatal(err)
	}
	start := func() (servers []*embedded.Server) {
		for i, address := range endpoints {
			c := embedded.ServerConfig{Dir: filepath.Join(dir, strconv.Itoa(i)), Listen: address,
				Core: endpoints, CacheBytes: 32 << 20, MemTableBytes: 8 << 20}
			if secure {
				c.TLSCert, c.TLSKey = files.server.Cert, files.server.Key
				c.TLSCA, c.TLSPeerCA = files.clientCA.Cert, files.serverCA.Cert
			} else {
				c.SecretFile = files.secret
			}
			s, err := embedded.StartServer(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close(context.Background()) })
			servers = append(servers, s)
		}
		for _, s := range servers {
			if err := s.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return servers
	}
	servers := start()
	var client *tls.Config
	if secure {
		if client, err = authn.LoadClientTLS(files.client.Cert, files.client.Key,
			files.serverCA.Cert); err != nil {
			t.Fatal(err)
		}
	}
	open := func() (*kv.Client, *kv.Keyspace) {
		t.Helper()
		c, err := kv.Open(t.Context(), endpoints, kv.TLS(client))
		if err != nil {
			t.Fatal(err)
		}
		return c, c.Keyspace("honest")
	}
	c, keyspace := open()
	defer c.Close()
	if _, err := c.CreateKeyspace(t.Context(), "honest", kv.Hash(8)); err != nil {
		t.Fatal(err)
	}
	load := honest.Start(t.Context(), keyspace, 4, 5*time.Millisecond)
	target := abuse.Target{Addresses: endpoints, Cluster: servers[0].Status().Cluster, TLS: client,
		Keyspace: "honest"}
	for i, act := range abuse.Names() {
		acting, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		report := abuse.Run(acting, abuse.Config{Target: target, Seed: uint64(i), Parallel: 2,
			Longest: time.Second, Only: func(name string) bool { return name == act }})
		cancel()
		if report.Found != nil {
			t.Error(report.Found)
		}
		if report.Acts[act] == 0 {
			t.Errorf("%s was not played", act)
		}
	}
	load.Stop()
	if m := load.Measure(); m.Failures > 0 || m.Requests == 0 {
		t.Errorf("of %d requests %d failed: %v", m.Requests, m.Failures, m.Failure)
	}
	for i, server := range servers {
		if err := server.Err(); err != nil {
			t.Errorf("server %d: %v", i+1, err)
		}
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	_ = c.Close()
	start()
	again, keyspace := open()
	defer again.Close()
	if err := load.Verify(t.Context(), keyspace); err != nil {
		t.Error(err)
	}
}
