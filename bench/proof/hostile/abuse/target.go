package abuse

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// Target is the cluster that is abused.
type Target struct {
	// Addresses are addresses of servers. HTTP has the addresses of their HTTP ports.
	Addresses, HTTP []string
	// Cluster is the id of the cluster, for strangers that know it.
	Cluster uint64
	// TLS is nil without TLS. It has the certificate of a client.
	TLS *tls.Config `json:"-"`
	// Keyspace is the name of an existing keyspace.
	Keyspace string
}

// stranger is one hostile host in one act.
type stranger struct {
	*Target
	random *rand.Rand
	// from is the stranger's address.
	from net.IP
	// bytes and connections count the sent bytes and the opened connections.
	bytes, connections *atomic.Int64
}

func (s *stranger) address() string { return s.Addresses[s.random.IntN(len(s.Addresses))] }

// dial opens a TCP connection, from the stranger's address if it is one of this machine.
func (s *stranger) dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second}
	if host, _, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).IsLoopback() {
		d.LocalAddr = &net.TCPAddr{IP: s.from}
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s.connections.Add(1)
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &counted{conn, s.bytes}, nil
}

// connect opens a connection, with TLS if the servers have it, for a protocol (ALPN).
func (s *stranger) connect(ctx context.Context, protocol string) (net.Conn, error) {
	address := s.address()
	conn, err := s.dial(ctx, address)
	if err != nil || s.TLS == nil {
		return conn, err
	}
	config := s.TLS.Clone()
	config.NextProtos = []string{protocol}
	config.ServerName, _, _ = net.SplitHostPort(address)
	over := tls.Client(conn, config)
	handshake, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := over.HandshakeContext(handshake); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return over, nil
}

// counted counts the bytes that are written.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

// Write implements net.Conn. It gives up soon if the other side does not read.
func (c *counted) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
	n, err := c.Conn.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// rest waits a little, and returns false when ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// garbage fills a slice with random bytes.
func (s *stranger) garbage(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.random.Uint32())
	}
	return b
}
