package embedded

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A node finds its way to coordinators with the server's own addresses and certificates, and gives
// it up when the server closes: the bubble ends only when no goroutine is left in it.
func TestPushesTravelAsTheServerDoes(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				network := memnet.New()
				const address = "127.0.0.1:7400"
				config := ServerConfig{
					FS: vfs.NewMem(), Dir: "dir", Listen: address, Core: []string{address},
					CacheBytes: 1 << 20, MemTableBytes: 1 << 20,
					NewListener: network.Listen, Dial: network.Dialer("127.0.0.1"),
				}
				if secure {
					dir := t.TempDir()
					config.TLSCert, config.TLSKey, config.TLSCA = filepath.Join(dir,
						"cert"), filepath.Join(dir, "key"), filepath.Join(dir, "cert")
					writeCertificate(t, config.TLSCert, config.TLSKey)
				}
				s, err := StartServer(ctx, config)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := s.Close(ctx); err != nil {
						t.Error(err)
					}
				}()
				if err := s.WaitReady(ctx); err != nil {
					t.Fatal(err)
				}
				// A keyspace that is nowhere: to know that, one must have the partition table.
				told := make(chan error, 1)
				now := &kvpb.Timestamp{Wall: uint64(time.Now().UnixNano())}
				pusher := s.node.part.Load().pusher
				pusher.Push(&kvpb.PushRequest{
					Pushee: &kvpb.Transaction{Id: []byte("sixteen bytes id"), Begun: now,
						Started: now, Keyspace: 12345, Anchor: []byte("a")}, Seen: now,
				}, func(_ *kvpb.TransactionStatus, err error) { told <- err })
				if err := <-told; !errors.Is(err, route.ErrNoKeyspace) {
					t.Errorf("%v, want that there is no such keyspace", err)
				}
			})
		})
	}
}

// writeCertificate makes one that is its own authority, for 127.0.0.1.
func writeCertificate(t *testing.T, cert, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey,
		private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed},
		key: {Type: "EC PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
